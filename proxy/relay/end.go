package relay

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lastcall-proxy/lastcall/proxy/observe"
)

// Finish ends a link gently: what was given to either flow goes out, then FIN to both sides; what they still send is read
// and thrown away, so that it cannot turn our last bytes into a RST; both sockets are closed when the peers have sent FIN
// too, or after the linger.
func (k *Link) Finish() {
	if k.closed || k.finishing || k.resetting {
		return
	}
	k.finishing = true
	k.sides[0].discard, k.sides[1].discard = true, true
	k.finTo(0)
	k.finTo(1)
	k.loop.timers.set(&k.timer, k.loop.now+int64(k.loop.cfg.Linger))
	k.settle()
}

// Kill closes both sockets now, with RST: truncated data must look truncated.
func (k *Link) Kill() { k.close(true) }

// reset handles a side that broke off: the other side is reset too, once it has what came before.
func (k *Link) reset(slot int, e syscall.Errno) {
	s := &k.sides[slot]
	if s.outer != nil {
		if beyond := s.outer.Err(); beyond != 0 {
			e = beyond // a pair whose far end closes with bytes unread is reset, whatever happened beyond
		}
	}
	if k.closed || k.resetting {
		k.dropSide(s)
		k.check()
		return
	}
	if k.finishing {
		k.dropSide(s)
		k.settle()
		return
	}
	gentle := k.owner.Reset(observe.Direction(slot), e)
	if k.closed {
		return
	}
	k.dropSide(s)
	other := &k.sides[slot^1]
	if gentle {
		k.Finish()
		return
	}
	if other.fd < 0 || (slot == 0 && k.connecting) {
		k.close(true)
		return
	}
	k.resetting = true
	other.discard = true
	k.resetUntil = k.loop.now + int64(k.loop.cfg.ResetWait)
	k.update(slot ^ 1)
	k.resetWhenTaken()
}

// resetPoll is how often a pending reset looks whether the bytes before it have arrived.
const resetPoll = 2 * time.Millisecond

func (k *Link) resetWhenTaken() {
	for i := range k.sides {
		s := &k.sides[i]
		if s.fd >= 0 && (len(s.out) > 0 || (!s.broken && unacked(s.fd) > 0)) && k.loop.now < k.resetUntil {
			k.loop.timers.set(&k.timer, k.loop.now+int64(resetPoll))
			return
		}
	}
	k.close(true)
}

// dropSide closes one socket of a link that goes on for the other's sake.
func (k *Link) dropSide(s *side) {
	if s.fd < 0 {
		return
	}
	k.loop.forget(s.fd)
	s.close(false)
	s.eof, s.shut, s.broken, s.err = true, true, true, 0
	if s.out != nil {
		k.loop.giveBuffer(s.out)
		s.out = nil
	}
}

// check closes the link when both directions are over.
func (k *Link) check() {
	if k.closed || k.resetting {
		return
	}
	for i := range k.sides {
		// A side past its FIN that then refused our bytes: nothing will be read from it any more, so this is where its reset shows.
		if s := &k.sides[i]; s.eof && s.broken && s.err != 0 && s.fd >= 0 {
			k.reset(i, s.err)
			return
		}
	}
	for i := range k.sides {
		s := &k.sides[i]
		if s.fd < 0 && i == 1 && k.finishing {
			continue // no app was dialled, or it is gone
		}
		if !s.eof || !(s.shut || s.broken) {
			return
		}
	}
	k.close(false)
}

// timeout is the link's only timer: dial, linger or pending reset.
func (k *Link) timeout() {
	switch {
	case k.closed:
	case k.resetting:
		k.resetWhenTaken()
	case k.finishing:
		if k.sides[0].out != nil { // a slow reader still takes its last bytes; the deadline bounds it
			k.loop.timers.set(&k.timer, k.loop.now+int64(k.loop.cfg.Linger))
			return
		}
		k.close(false)
	case k.connecting:
		k.dialFailed(unix.ETIMEDOUT, true)
	}
}

func (k *Link) close(rst bool) {
	if k.closed {
		return
	}
	k.closed = true
	k.loop.timers.stop(&k.timer)
	for i := range k.sides {
		s := &k.sides[i]
		if s.out != nil {
			k.loop.giveBuffer(s.out)
			s.out = nil
		}
		if s.fd < 0 {
			continue
		}
		k.loop.forget(s.fd)
		s.close(rst)
	}
	k.loop.links.Add(-1)
	k.owner.Closed()
}

// close closes a side's socket.
func (s *side) close(rst bool) {
	if s.outer != nil {
		s.outer.Closing(rst)
	}
	if rst {
		closeReset(s.fd)
	} else {
		rawClose(s.fd)
	}
	s.fd = -1
}
