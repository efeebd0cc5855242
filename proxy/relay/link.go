package relay

import (
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/lastcall-proxy/lastcall/proxy/observe"
)

// Owner decides about one link. All its methods run on the loop's goroutine.
type Owner interface {
	// Connected says that the app was reached.
	Connected()
	// DialFailed says that it was not; the client is reset afterwards. err is ETIMEDOUT for our own dial timeout.
	DialFailed(err syscall.Errno, timeout bool)
	// Data sees the bytes of a flow before they are passed on and returns how they change; nil: as they came.
	Data(dir observe.Direction, p []byte) []observe.Edit
	// EOF says that a flow's source has sent FIN. It is passed on as a half-close.
	EOF(dir observe.Direction) []observe.Edit
	// Reset says that a side broke off (RST or another socket error); everything it sent before has been given to Data.
	// True asks to finish the other side gently instead of resetting it.
	Reset(side observe.Direction, err syscall.Errno) (gentle bool)
	// Blocked says that a side does not take its bytes, or takes them again.
	Blocked(side observe.Direction, blocked bool)
	// Closed is the last call: both sockets are closed.
	Closed()
}

// Outer stands behind a side whose socket is one end of a pair: TLS is spoken beyond it. It carries what a pair can't.
type Outer interface {
	// Err is asked at a FIN: 0 if it is one, else what broke the connection beyond.
	Err() syscall.Errno
	// Closing says that the socket is about to be closed; with rst the peer beyond must see a reset.
	Closing(rst bool)
}

// side is one socket of a link.
type side struct {
	outer   Outer  // nil: the socket is the peer's own
	fd      int32  // -1: none (yet, or any more)
	events  uint32 // epoll interest
	polled  bool   // registered with epoll
	eof     bool   // it has sent FIN
	fin     bool   // FIN is to be sent to it once out is empty
	shut    bool   // FIN has been sent to it
	broken  bool   // it takes no more bytes: a write failed
	stale   bool   // its interest in epoll is older than its FIN
	discard bool   // what it sends is read and thrown away
	err     syscall.Errno
	out     []byte // bytes for it that it has not taken; nil when empty
}

// Link is one client socket and the app socket opened for it. Used only on its loop's goroutine.
type Link struct {
	loop       *Loop
	owner      Owner
	sides      [2]side // by observe.Direction: client, app
	connecting bool
	finishing  bool
	resetting  bool
	closed     bool
	held       bool // Hold
	finishNext bool // Finish once the edits at hand are in
	resetUntil int64
	leftHeld   func() // the client left while held
	timer      timer
}

// Attach takes over an accepted, non-blocking client socket. The link reads at once; Dial gives it an app.
func (l *Loop) Attach(fd int32, o Owner) (*Link, error) {
	k := &Link{loop: l, owner: o}
	k.sides[0].fd, k.sides[1].fd = fd, -1
	k.timer.idx = -1
	k.timer.fn = k.timeout
	if l.cfg.Prepare != nil { // TCP_NODELAY it has from its listener
		l.cfg.Prepare(int(fd))
	}
	if err := l.add(fd, k, 0, readable); err != nil {
		_ = unix.Close(int(fd))
		return nil, err
	}
	k.sides[0].polled, k.sides[0].events = true, readable
	l.links.Add(1)
	return k, nil
}

// SetOuter says what stands behind a side's socket.
func (k *Link) SetOuter(dir observe.Direction, o Outer) { k.sides[dir].outer = o }

// Wrap puts another socket in a side's place: wrap takes the old one, which is off the loop by then, and gives the new one.
func (k *Link) Wrap(dir observe.Direction, wrap func(fd int32) (int32, Outer, error)) error {
	s := &k.sides[dir]
	k.unpoll(s)
	k.loop.forget(s.fd)
	fd, outer, err := wrap(s.fd)
	if err != nil {
		s.fd = -1
		return err
	}
	s.fd, s.outer = fd, outer
	k.update(int(dir))
	return nil
}

// noDelay sets TCP_NODELAY: without it an answer written in pieces waits for the peer's delayed ACK, 44 ms each. It fails
// harmlessly on unix sockets.
func noDelay(fd int) { _ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1) }

func (l *Loop) prepare(fd int32) {
	noDelay(int(fd))
	if l.cfg.Prepare != nil {
		l.cfg.Prepare(int(fd))
	}
}

// readable is the interest in what a side sends. EPOLLRDHUP tells of a FIN behind the bytes.
const readable = unix.EPOLLIN | unix.EPOLLRDHUP

// event handles readiness of one side.
func (k *Link) event(slot int, events uint32) {
	s := &k.sides[slot]
	if slot == 1 && k.connecting {
		k.connected()
		return
	}
	if k.held {
		k.heldEvent(slot, events)
		return
	}
	if events&unix.EPOLLOUT != 0 && !k.closed {
		k.flush(slot)
	}
	if k.closed || s.fd < 0 {
		return
	}
	if s.stale && s.polled { // now it has to be taken off
		k.update(slot)
		if events&(unix.EPOLLERR|unix.EPOLLHUP) == 0 {
			return
		}
	}
	if events&(unix.EPOLLIN|unix.EPOLLERR|unix.EPOLLHUP) == 0 {
		return
	}
	if s.events&unix.EPOLLIN != 0 {
		if events&^(unix.EPOLLIN|unix.EPOLLOUT) != 0 {
			k.loop.more = true // a FIN or an error waits behind the bytes
		}
		k.read(slot)
		return
	}
	// Error or hang-up on a side that is not being read: paused, or past its FIN. Epoll would report it for ever.
	if events&unix.EPOLLERR != 0 && s.eof {
		if e := sockError(s.fd); e != 0 {
			k.reset(slot, e)
			return
		}
	}
	if events&(unix.EPOLLERR|unix.EPOLLHUP) != 0 {
		k.unpoll(s) // update registers it again when it is read or written next
		if s.eof && (s.shut || s.broken) {
			k.check()
		}
	}
}

// read takes what a side has sent, once: level-triggered epoll comes back for more.
func (k *Link) read(slot int) {
	s := &k.sides[slot]
	n, e := rawRead(s.fd, k.loop.buf)
	if n == len(k.loop.buf) || e == unix.EINTR {
		k.loop.more = true
	}
	switch {
	case n > 0:
		if s.discard {
			return
		}
		k.deliver(observe.Direction(slot), k.loop.buf[:n])
	case e == unix.EAGAIN || e == unix.EINTR:
	case e == 0 && s.err != 0:
		k.reset(slot, s.err) // the write that failed took the socket's error with it
	case e == 0:
		k.eof(slot)
	default:
		k.reset(slot, e)
	}
}

// deliver gives bytes to the owner, then passes on what it left of them.
func (k *Link) deliver(dir observe.Direction, p []byte) {
	edits := k.owner.Data(dir, p)
	if k.closed {
		return
	}
	to := int(dir.Other())
	if edits == nil {
		k.send(to, p)
		if k.sides[to].broken || k.finishNext {
			k.settle()
			return
		}
		k.update(to)
		k.update(int(dir))
		return
	}
	k.apply(edits, dir, p)
}

// apply passes p on with its edits, and the other flow's edits behind what that flow was given.
func (k *Link) apply(edits []observe.Edit, dir observe.Direction, p []byte) {
	at := 0
	for _, e := range edits {
		if e.Dir != dir {
			k.send(int(e.Dir.Other()), e.Insert)
			continue
		}
		k.send(int(dir.Other()), p[at:e.Off])
		k.send(int(dir.Other()), e.Insert)
		at = e.Off + e.Drop
	}
	k.send(int(dir.Other()), p[at:])
	k.settle()
}

// Apply puts edits in that no bytes led to.
func (k *Link) Apply(edits []observe.Edit) {
	if k.closed {
		return
	}
	for _, e := range edits {
		k.send(int(e.Dir.Other()), e.Insert)
	}
	k.settle()
}

func (k *Link) settle() {
	if k.closed {
		return
	}
	if k.finishNext {
		k.finishNext = false
		k.Finish()
		return
	}
	k.update(0)
	k.update(1)
	k.check()
}

// FinishNext asks for Finish as soon as the edits of the call that is under way are in.
func (k *Link) FinishNext() { k.finishNext = true }

// send writes to a side, or keeps what it does not take.
func (k *Link) send(slot int, p []byte) {
	s := &k.sides[slot]
	if len(p) == 0 || s.broken || s.shut || k.closed {
		return
	}
	if s.out == nil && s.fd >= 0 && !(slot == 1 && k.connecting) {
		n, e := rawSend(s.fd, p)
		if e != 0 && e != unix.EAGAIN && e != unix.EINTR {
			k.broke(slot, e)
			return
		}
		p = p[n:]
		if len(p) == 0 {
			return
		}
	}
	if s.out == nil {
		s.out = k.loop.takeBuffer()
		if s.fd >= 0 && !(slot == 1 && k.connecting) {
			k.owner.Blocked(observe.Direction(slot), true)
		}
	}
	s.out = append(s.out, p...)
}

// flush writes what waits for a side.
func (k *Link) flush(slot int) {
	s := &k.sides[slot]
	for len(s.out) > 0 {
		n, e := rawSend(s.fd, s.out)
		if e == unix.EAGAIN || e == unix.EINTR {
			k.update(slot)
			return
		}
		if e != 0 {
			k.broke(slot, e)
			k.settle()
			return
		}
		s.out = s.out[:copy(s.out, s.out[n:])]
	}
	if s.out != nil {
		k.loop.giveBuffer(s.out)
		s.out = nil
		k.owner.Blocked(observe.Direction(slot), false)
	}
	if s.fin && !s.shut && !k.resetting {
		k.shutdown(s)
	}
	k.settle()
}

// broke notes that a side takes no more bytes. What it sent before is still read: a 413 may lie in its socket while the
// upload that it refused runs into its RST.
func (k *Link) broke(slot int, e syscall.Errno) {
	s := &k.sides[slot]
	s.broken, s.err = true, e
	if s.out != nil {
		k.loop.giveBuffer(s.out)
		s.out = nil
	}
	k.sides[slot^1].discard = true
}

func (k *Link) shutdown(s *side) {
	s.shut = true
	if s.fd >= 0 {
		rawShutdownWrite(s.fd)
	}
}

// eof passes a FIN on.
func (k *Link) eof(slot int) {
	s := &k.sides[slot]
	if s.outer != nil {
		if e := s.outer.Err(); e != 0 {
			k.reset(slot, e)
			return
		}
	}
	s.eof = true
	if !k.finishing && !k.resetting {
		if edits := k.owner.EOF(observe.Direction(slot)); (len(edits) > 0 || k.finishNext) && !k.closed {
			k.Apply(edits)
		}
	}
	if k.closed {
		return
	}
	other := &k.sides[slot^1]
	if other.eof && other.fd >= 0 && s.out == nil && other.out == nil && !s.broken && !other.broken && s.shut && !k.resetting && !k.connecting {
		k.close(false) // the last half: closing sends its FIN
		return
	}
	k.finTo(slot ^ 1)
	k.settle()
}

func (k *Link) finTo(slot int) {
	s := &k.sides[slot]
	if s.shut || s.broken {
		return
	}
	s.fin = true
	if s.out == nil && s.fd >= 0 && !(slot == 1 && k.connecting) {
		k.shutdown(s)
	}
}

// update registers the interest that a side has now.
func (k *Link) update(slot int) {
	s := &k.sides[slot]
	if s.fd < 0 || k.closed || (slot == 1 && k.connecting) {
		return
	}
	if k.held {
		k.heldInterest(slot)
		return
	}
	var want uint32
	// A reader is paused while the other side has bytes waiting: backpressure.
	if !s.eof && (s.discard || k.sides[slot^1].out == nil) {
		want |= readable
	}
	if s.out != nil {
		want |= unix.EPOLLOUT
	}
	if want == s.events && s.polled {
		return
	}
	if want == 0 && s.eof && s.polled && !s.stale {
		s.stale = true // past its FIN; most links end before epoll tells of it again
		return
	}
	k.want(slot, want)
}

// want registers an interest with epoll.
func (k *Link) want(slot int, want uint32) {
	s := &k.sides[slot]
	if want == s.events && s.polled {
		return
	}
	if !s.polled {
		if want == 0 {
			s.events = 0
			return
		}
		if k.loop.add(s.fd, k, slot, want) != nil {
			k.Kill()
			return
		}
		s.polled, s.events = true, want
		return
	}
	s.events = want
	k.loop.modify(s.fd, want)
}

func (k *Link) unpoll(s *side) {
	if s.polled {
		k.loop.remove(s.fd)
		s.polled, s.events = false, 0
	}
}
