package relay

import "golang.org/x/sys/unix"

// Hold stops moving bytes both ways and keeps both sockets open: to either peer the other has fallen silent, as behind a
// path that was cut without a word. Nothing is lost by it: what the peers send waits in the sockets until Release. When the
// client leaves meanwhile, the link is released by itself, and left is called before its FIN or reset is read. False: the
// link is ending already, or its app is not reached yet.
func (k *Link) Hold(left func()) bool {
	if k.closed || k.finishing || k.resetting || k.connecting || k.held || k.sides[1].fd < 0 {
		return false
	}
	k.held, k.leftHeld = true, left
	k.update(0)
	k.update(1)
	return true
}

// Release lets bytes move again.
func (k *Link) Release() {
	if !k.held || k.closed {
		return
	}
	k.held, k.leftHeld = false, nil
	k.settle()
}

// heldInterest is what a held link waits for: the client's leaving. The app's side waits for nothing, and has to be off
// epoll for that: errors and hang-ups are reported whether asked for or not.
func (k *Link) heldInterest(slot int) {
	s := &k.sides[slot]
	if slot == 1 || s.eof {
		k.unpoll(s)
		s.stale = false
		return
	}
	k.want(slot, unix.EPOLLRDHUP)
}

// heldEvent handles readiness of a held link: a hang-up, or what was reported before the hold and is left for later.
func (k *Link) heldEvent(slot int, events uint32) {
	if slot != 0 || events&(unix.EPOLLRDHUP|unix.EPOLLERR|unix.EPOLLHUP) == 0 {
		return
	}
	left := k.leftHeld
	k.Release()
	if left != nil {
		left()
	}
}
