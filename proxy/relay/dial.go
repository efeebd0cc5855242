package relay

import (
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
	var sa unix.RawSockaddrAny
	family, size, e := t.sockaddr(&sa)
	if e != 0 {
		k.dialFailed(e, false)
		return
	}
	fd, e := rawSocket(family)
	if e != 0 {
		k.dialFailed(e, false)
		return
	}
	k.loop.prepare(fd)
	k.sides[1].fd = fd
	k.connecting = true
	e = rawConnect(fd, &sa, size)
	if e == unix.EINPROGRESS {
		// An app beside us has answered by now: the loopback's handshake is over when connect returns. Asking again costs
		// one call and saves a wake-up and three.
		switch e = rawConnect(fd, &sa, size); e {
		case unix.EISCONN:
			e = 0
		case unix.EALREADY:
			e = unix.EINPROGRESS
		}
	}
	if e != 0 && e != unix.EINPROGRESS {
		k.dialFailed(e, false)
		return
	}
	interest := uint32(unix.EPOLLOUT)
	if e == 0 {
		interest = readable
	}
	if k.loop.add(fd, k, 1, interest) != nil {
		k.dialFailed(unix.EMFILE, false)
		return
	}
	k.sides[1].polled, k.sides[1].events = true, interest
	if e == 0 {
		k.reached()
		return
	}
	k.loop.timers.set(&k.timer, k.loop.now+int64(k.loop.cfg.DialTimeout))
}

// connected handles the first event of a socket that is being connected.
func (k *Link) connected() {
	s := &k.sides[1]
	if e := sockError(s.fd); e != 0 {
		k.dialFailed(e, false)
		return
	}
	if !k.finishing && !k.resetting {
		k.loop.timers.stop(&k.timer)
	}
	k.reached()
}

// reached goes on once the app's side is connected.
func (k *Link) reached() {
	s := &k.sides[1]
	k.connecting = false
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
