package relay

import (
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// acceptBatch bounds the connections taken at one event, so that a flood does not starve the links of the same loop.
const acceptBatch = 64

// acceptPause is how long a listener rests after the process ran out of descriptors.
const acceptPause = 100 * time.Millisecond

// Listener is a listening socket on a loop.
type Listener struct {
	loop   *Loop
	fd     int32
	accept func(fd int32, peer netip.AddrPort)
	full   func(err syscall.Errno)
	timer  timer
	closed bool
}

// Listen serves a non-blocking listening socket. accept is called on the loop for each connection and owns its
// descriptor; full is told each time accepting had to pause for want of descriptors (EMFILE, ENFILE) or memory.
func (l *Loop) Listen(fd int, accept func(fd int32, peer netip.AddrPort), full func(syscall.Errno)) *Listener {
	n := &Listener{loop: l, fd: int32(fd), accept: accept, full: full}
	noDelay(fd) // accepted sockets inherit it
	n.timer.idx = -1
	n.timer.fn = n.resume
	l.Do(n.resume)
	return n
}

func (n *Listener) resume() {
	if n.closed {
		return
	}
	if err := n.loop.add(n.fd, n, 0, unix.EPOLLIN); err != nil {
		n.loop.timers.set(&n.timer, n.loop.now+int64(acceptPause))
	}
}

func (n *Listener) event(int, uint32) { n.take(acceptBatch) }

func (n *Listener) take(most int) {
	for range most {
		fd, peer, e := rawAccept(n.fd)
		switch e {
		case 0:
			n.accept(fd, peer)
		case unix.EINTR, unix.ECONNABORTED:
		case unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM:
			n.full(e)
			if !n.closed {
				n.loop.remove(n.fd)
				n.loop.timers.set(&n.timer, n.loop.now+int64(acceptPause))
			}
			return
		default:
			return
		}
	}
	n.loop.more = true
}

// Close takes what waits in the accept queue, then closes the socket. Only on the loop.
func (n *Listener) Close() {
	if n.closed {
		return
	}
	n.closed = true
	n.loop.timers.stop(&n.timer)
	n.take(1 << 16)
	n.loop.remove(n.fd)
	_ = unix.Close(int(n.fd))
}
