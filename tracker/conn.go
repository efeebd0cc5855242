package tracker

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// Conn is a connection: one client socket and the one app socket opened for it. It is used by the goroutine that owns its
// shard only, and not after End: the record is used again for another connection some time after it has left the ring.
type Conn struct {
	// Immutable while in use.
	shard  *Shard
	id     uint64
	opened int64 // ns since the epoch
	epoch  uint32
	dir    Direction

	// Atomic; written by the owner.
	bytes [2]atomic.Int64 // by source, see side
	last  [2]atomic.Int64 // when a source sent last, ns since the epoch; at first: opened
	state atomic.Uint32   // stage, and which sides are blocked

	// Written by the owner under shard.mu; read by the owner without it.
	kind     Kind
	class    Class
	normal   bool // a stream of class normal was seen: the class stays normal
	answer   Answer
	farewell FarewellKind // our own
	halfBy   Party        // who sent FIN first
	broke    Stage        // where EndStreams found the oldest stream; StageConnect: it found none
	late     bool         // began during the drain that was running at the end
	// Whose turn it was when EndStreams broke something off.
	lastWaiting WaitingOn
	fate        Fate
	by          Party
	how         How
	began       uint32 // streams begun after our farewell
	total       uint32 // streams begun
	toldAt      int64  // when our farewell was given, ns since the epoch
	halfAt      int64
	ended       int64
	drainAt     int64 // start of the drain that was running at the end; 0: none was
	node        node[Conn]
	facts       *facts
	agent       string
	streams     list[Stream] // open; linked by Stream.sib
	reason      string
}

// The bits of Conn.state.
const (
	stageMask    = 0xff
	blockedShift = 8 // one bit per side
)

// ID is process-unique; records write it as "c42".
func (c *Conn) ID() uint64 { return c.id }

// Late says that the connection began after the drain that is running.
func (c *Conn) Late() bool {
	c.shard.mu.Lock()
	defer c.shard.mu.Unlock()
	return c.shard.late(c.epoch)
}

// Told says that we gave the connection a farewell.
func (c *Conn) Told() bool { return c.farewell != FarewellNone }

// Streams is how many are open now.
func (c *Conn) Streams() int { return c.streams.n }

// Kind is the connection's kind.
func (c *Conn) Kind() Kind { return c.kind }

// SetKind says what the connection turned out to speak.
func (c *Conn) SetKind(k Kind) {
	if c.kind == k || k >= numKinds {
		return
	}
	s := c.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.fate != FateOpen {
		return
	}
	s.books.KindChanges[WhatConnection][c.dir][c.kind][k]++
	s.countOpen(WhatConnection, c.dir, c.kind, -1)
	s.countOpen(WhatConnection, c.dir, k, 1)
	c.kind = k
}

// SetApp says where the connection goes.
func (c *Conn) SetApp(addr string) { c.setFacts(func(f *facts) { f.app = addr }) }

// SetClient says where the connection comes from: known late when a PROXY header tells it.
func (c *Conn) SetClient(addr string) { c.setFacts(func(f *facts) { f.client = addr }) }

// SetPeer gives what a TLS ClientHello said (RFC 6066 section 3, RFC 7301).
func (c *Conn) SetPeer(sni, alpn string) {
	c.setFacts(func(f *facts) { f.sni, f.alpn = clipString(sni, maxAuthority), clipString(alpn, maxAuthority) })
}

// SetIdentity gives the URI or DNS name of an accepted client certificate.
func (c *Conn) SetIdentity(identity string) {
	c.setFacts(func(f *facts) { f.identity = clipString(identity, maxPath) })
}

func (c *Conn) setFacts(change func(*facts)) {
	next := *c.facts
	change(&next)
	c.shard.mu.Lock()
	defer c.shard.mu.Unlock()
	if c.fate == FateOpen {
		c.facts = &next
	}
}

// SetStage says how far the connection itself is: connect, handshake, then idle, which makes room for the stages of its
// streams. While a connection or a handshake is still being made, that is the stage of its streams, too.
func (c *Conn) SetStage(st Stage) {
	c.state.Store(c.state.Load()&^stageMask | uint32(st))
}

// SetClass says whose traffic this is. Streams pass theirs on by themselves. One normal stream makes the connection
// normal for good.
func (c *Conn) SetClass(cl Class) {
	c.shard.mu.Lock()
	defer c.shard.mu.Unlock()
	c.setClass(cl)
}

// setClass is SetClass with mu held.
func (c *Conn) setClass(cl Class) {
	if cl == ClassNormal {
		c.normal = true
	} else if c.normal {
		return
	}
	if c.class == cl || c.fate != FateOpen {
		return
	}
	if c.class == ClassNormal {
		c.shard.holdConn(-1)
	} else if cl == ClassNormal {
		c.shard.holdConn(1)
	}
	c.class = cl
}

// AddBytes counts n bytes as they move, and when they did.
func (c *Conn) AddBytes(from Party, n int, now int64) {
	i := side(from)
	c.bytes[i].Add(int64(n))
	c.last[i].Store(now)
	c.shard.bytes[c.dir][i].Add(int64(n))
}

// HalfClosed says that a side has sent FIN. The first one is shown.
func (c *Conn) HalfClosed(by Party, now int64) {
	c.shard.mu.Lock()
	defer c.shard.mu.Unlock()
	if c.halfBy == ByUnknown && c.fate == FateOpen {
		c.halfBy, c.halfAt = by, now
	}
}

// Blocked says whether a side does not read: bytes for it wait because its socket is full.
func (c *Conn) Blocked(sd Party, blocked bool) {
	bit := uint32(1) << (blockedShift + side(sd))
	if blocked {
		c.state.Store(c.state.Load() | bit)
	} else {
		c.state.Store(c.state.Load() &^ bit)
	}
}

// Farewell says that a goodbye was given to the connection. The first one of our own counts; those of the app's or the
// client's (own false) are counted apart.
func (c *Conn) Farewell(kind FarewellKind, own bool, now int64) {
	s := c.shard
	s.mu.Lock()
	if c.fate != FateOpen || kind == FarewellNone || kind >= numFarewells {
		s.mu.Unlock()
		return
	}
	if !own {
		s.books.OthersFarewells[kind]++
		s.mu.Unlock()
		return
	}
	first := c.farewell == FarewellNone
	if first {
		c.farewell, c.toldAt = kind, now
	}
	tell := first && s.reg.events.wants(EventFarewell, WhatConnection)
	if tell {
		c.copyTo(&s.scratch, now)
	}
	s.mu.Unlock()
	if tell {
		s.reg.publish(EventFarewell, &s.scratch, now)
	}
}

// Answer says what a late connection got; without it, End concludes it from the fate. It does nothing for others.
func (c *Conn) Answer(a Answer) {
	c.shard.mu.Lock()
	defer c.shard.mu.Unlock()
	if c.fate == FateOpen {
		c.answered(a)
	}
}

// answered is Answer with mu held.
func (c *Conn) answered(a Answer) {
	if c.answer != AnswerNone || a == AnswerNone || a >= numAnswers || !c.shard.late(c.epoch) {
		return
	}
	c.answer = a
	if c.class == ClassNormal {
		c.shard.answered(WhatConnection, a, c.opened)
	}
}

// OpenStream registers a stream: its first byte was seen.
func (c *Conn) OpenStream(k Kind, now int64) *Stream {
	if now == 0 {
		now = c.shard.reg.Now()
	}
	s := c.shard
	s.mu.Lock()
	if c.fate != FateOpen {
		err := fmt.Errorf("tracker: c%d: stream opened after the connection's end", c.id)
		s.noteBug(err)
		if s.reg.cfg.Strict {
			s.mu.Unlock()
			panic(err)
		}
	}
	c.total++
	if c.farewell != FarewellNone {
		c.began++
	}
	st := s.newStream()
	st.conn, st.connID, st.n, st.opened, st.epoch, st.dir, st.kind = c, c.id, c.total, now, s.epoch, c.dir, k
	st.last[0].Store(now)
	st.last[1].Store(now)
	st.state.Store(uint64(WaitingClient)<<waitingShift | uint64(StageRequest)<<streamStageShift)
	if k.Opaque() {
		st.state.Store(uint64(WaitingEither)<<waitingShift | uint64(StageTunnel)<<streamStageShift)
	}
	s.streams.pushBack(&st.node)
	c.streams.pushBack(&st.sib)
	s.books.Opened[WhatStream][st.dir][k]++
	s.countOpen(WhatStream, st.dir, k, 1)
	s.holdStreams[k]++
	tell := s.reg.events.wants(EventOpened, WhatStream)
	if tell {
		st.copyTo(&s.scratch, now)
	}
	s.mu.Unlock()
	if tell {
		s.reg.publish(EventOpened, &s.scratch, now)
	}
	return st
}

// stage is how far the connection is. The caller holds mu, or owns the connection.
func (c *Conn) stage() Stage {
	own := c.ownStage()
	if st := c.streams.front(); st != nil && own != StageConnect && own != StageHandshake {
		return st.ownStage()
	}
	return own
}

func (c *Conn) ownStage() Stage { return Stage(c.state.Load() & stageMask) }

// waiting is whose turn it is. The caller holds mu.
func (c *Conn) waiting() WaitingOn {
	if w, ok := c.waitingAll(); ok {
		return w
	}
	if st := c.streams.front(); st != nil {
		return st.ownWaiting()
	}
	return WaitingNobody
}

// waitingAll is what stops all streams of a connection alike: a side that does not read, a dial.
func (c *Conn) waitingAll() (WaitingOn, bool) {
	v := c.state.Load()
	switch {
	case v>>blockedShift&1 != 0:
		return WaitingClient, true
	case v>>blockedShift&2 != 0, Stage(v&stageMask) == StageConnect:
		return WaitingApp, true
	}
	return WaitingNobody, false
}

// longLived says whether any of the connection's streams is. The caller holds mu.
func (c *Conn) longLived(now int64) bool {
	if c.kind.LongLived() {
		return true
	}
	if c.streams.n == 0 {
		return false
	}
	for nd := c.streams.root.next; nd != &c.streams.root; nd = nd.next {
		if nd.rec.longLived(now) {
			return true
		}
	}
	return false
}

func (c *Conn) size() int {
	return int(unsafe.Sizeof(*c)) + c.facts.size() + len(c.reason)
}

// reset makes a record from the pool a new one.
func (c *Conn) reset() {
	c.bytes[0].Store(0)
	c.bytes[1].Store(0)
	c.state.Store(0)
	c.kind, c.class, c.normal, c.answer = 0, 0, false, 0
	c.farewell, c.halfBy, c.broke, c.late, c.lastWaiting = 0, 0, 0, false, 0
	c.fate, c.by, c.how = 0, 0, 0
	c.began, c.total, c.toldAt, c.halfAt, c.ended, c.drainAt = 0, 0, 0, 0, 0, 0
	c.agent, c.reason = "", ""
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}
