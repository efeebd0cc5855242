package relay

import (
	"errors"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/lastcall-proxy/lastcall/proxy/observe"
)

// Target is where an app listens: an address, or a unix socket's path.
type Target struct {
	Addr netip.AddrPort
	Path string
}

// Dial begins to reach the app. Owner.Connected or Owner.DialFailed tells the outcome, possibly before Dial returns.
func (k *Link) Dial(t Target) {
	if k.closed || k.sides[1].fd >= 0 || k.finishing {
		return
	}
	fd, sa, err := socketFor(t)
	if err != nil {
		k.dialFailed(errnoOf(err), false)
		return
	}
	k.loop.prepare(int32(fd))
	k.sides[1].fd = int32(fd)
	k.connecting = true
	err = unix.Connect(fd, sa)
	if err != nil && !errors.Is(err, unix.EINPROGRESS) {
		k.dialFailed(errnoOf(err), false)
		return
	}
	if k.loop.add(int32(fd), k, 1, unix.EPOLLOUT) != nil {
		k.dialFailed(unix.EMFILE, false)
		return
	}
	k.sides[1].polled, k.sides[1].events = true, unix.EPOLLOUT
	if err == nil {
		k.connected()
		return
	}
	k.loop.timers.set(&k.timer, k.loop.now+int64(k.loop.cfg.DialTimeout))
}

func socketFor(t Target) (int, unix.Sockaddr, error) {
	const flags = unix.SOCK_STREAM | unix.SOCK_NONBLOCK | unix.SOCK_CLOEXEC
	if t.Path != "" {
		fd, err := unix.Socket(unix.AF_UNIX, flags, 0)
		return fd, &unix.SockaddrUnix{Name: t.Path}, err
	}
	if a := t.Addr.Addr().Unmap(); a.Is4() {
		fd, err := unix.Socket(unix.AF_INET, flags, 0)
		return fd, &unix.SockaddrInet4{Port: int(t.Addr.Port()), Addr: a.As4()}, err
	}
	fd, err := unix.Socket(unix.AF_INET6, flags, 0)
	return fd, &unix.SockaddrInet6{Port: int(t.Addr.Port()), Addr: t.Addr.Addr().As16()}, err
}

func errnoOf(err error) syscall.Errno {
	if e, ok := errors.AsType[syscall.Errno](err); ok {
		return e
	}
	return unix.EINVAL
}

// connected handles the first event of a socket that is being connected.
func (k *Link) connected() {
	s := &k.sides[1]
	if e := sockError(s.fd); e != 0 {
		k.dialFailed(e, false)
		return
	}
	k.connecting = false
	if !k.finishing && !k.resetting {
		k.loop.timers.stop(&k.timer)
	}
	k.owner.Connected()
	if k.closed {
		return
	}
	if s.out != nil {
		k.flush(1)
		return
	}
	if s.fin {
		k.shutdown(s)
	}
	k.settle()
}

func (k *Link) dialFailed(e syscall.Errno, timeout bool) {
	k.connecting = false
	k.owner.DialFailed(e, timeout)
	if k.finishing { // the client still has something to read
		k.dropSide(&k.sides[1])
		k.settle()
		return
	}
	k.close(true)
}

// HalfOpen tells which sides have sent FIN.
func (k *Link) HalfOpen() (client, app bool) {
	return k.sides[observe.FromClient].eof, k.sides[observe.FromApp].eof
}
