package tracker

import (
	"bytes"
	"sync/atomic"
	"unsafe"
)

// Stream is one exchange on a connection. It is used by the goroutine that owns its shard only, and not after End.
type Stream struct {
	// Immutable while in use.
	conn   *Conn
	connID uint64
	opened int64 // ns since the epoch
	n      uint32
	epoch  uint32
	dir    Direction

	// Atomic; written by the owner.
	bytes    [2]atomic.Int64
	last     [2]atomic.Int64 // see AddBytes
	messages [2]atomic.Int64
	state    atomic.Uint64 // stage, waiting, status, own half-close, gRPC status
	halfOwn  atomic.Int64  // when one side ended its part of the stream alone; see HalfClosed

	// Written by the owner under the shard's mu; read by the owner without it.
	kind      Kind
	class     Class
	answer    Answer
	fate      Fate
	by        Party
	how       How
	farewell  FarewellKind // the connection's, copied at the end
	halfBy    Party        // likewise
	headKnown bool
	late      bool   // began during the drain that was running at the end
	method    string // static, or "": then it is at the start of head
	head      []byte // method (if not static), path, authority, user agent; bounded, used again
	lens      [5]uint16
	closeCode int
	resetCode string
	reason    string
	ended     int64
	drainAt   int64
	toldAt    int64
	halfAt    int64
	began     uint32
	facts     *facts // the connection's, copied at the end
	node      node[Stream]
	sib       node[Stream] // in Conn.streams
}

// The fields of Stream.state.
const (
	streamStageShift = 0
	waitingShift     = 8
	statusShift      = 16
	halfShift        = 32
	grpcShift        = 40 // the code plus one
)

// Indexes of Stream.lens.
const (
	headMethod = iota
	headPath
	headAuthority
	headAgent
	headIdentity
)

// Number counts the streams of a connection from 1; records write it as the 7 of "c42.7".
func (s *Stream) Number() uint32 { return s.n }

// Kind is the stream's kind.
func (s *Stream) Kind() Kind { return s.kind }

// Class is the stream's class.
func (s *Stream) Class() Class { return s.class }

// Late says that the stream began after the drain that is running.
func (s *Stream) Late() bool {
	sh := s.conn.shard
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.late(s.epoch)
}

// SetKind says what the stream turned out to be.
func (s *Stream) SetKind(k Kind) {
	if s.kind == k || k >= numKinds {
		return
	}
	sh := s.conn.shard
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if s.fate != FateOpen {
		return
	}
	sh.books.KindChanges[WhatStream][s.dir][s.kind][k]++
	sh.countOpen(WhatStream, s.dir, s.kind, -1)
	sh.countOpen(WhatStream, s.dir, k, 1)
	s.hold(-1)
	s.kind = k
	s.hold(1)
}

// hold adds n to the streams that hold a drain, if this one does. The caller holds mu.
func (s *Stream) hold(n int) {
	if s.class != ClassNormal {
		return
	}
	sh := s.conn.shard
	sh.holdStreams[s.kind] += n
	if sh.survivor(s.epoch) {
		sh.survivorsOpen[s.kind] += n
	}
}

// SetHead gives the request's head. The bytes are copied, cut to the limits of records, the path without its query.
// identity is the value of the header that tells clients apart, where one is configured.
func (s *Stream) SetHead(method, path, authority, userAgent, identity []byte) {
	if i := bytes.IndexByte(path, '?'); i >= 0 {
		path = path[:i]
	}
	c := s.conn
	sh := c.shard
	if sh.reg.cfg.DropPaths {
		path = nil
	}
	known := knownMethod(method)
	if known != "" {
		method = nil
	}
	parts := [len(s.lens)][]byte{clip(method, maxMethod), clip(path, maxPath), clip(authority, maxAuthority), clip(userAgent, maxUserAgent), clip(identity, maxIdentity)}
	agent := c.agent
	if string(parts[headAgent]) != agent {
		agent = sh.agent(parts[headAgent])
	}

	sh.mu.Lock()
	defer sh.mu.Unlock()
	if s.fate != FateOpen {
		return
	}
	s.headKnown, s.method, s.head = true, known, s.head[:0]
	for i, p := range parts {
		s.head = append(s.head, p...)
		s.lens[i] = uint16(len(p))
	}
	c.agent = agent
}

// SetClass says whose traffic this is; the connection follows.
func (s *Stream) SetClass(cl Class) {
	sh := s.conn.shard
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if s.fate != FateOpen || cl >= numClasses {
		return
	}
	s.hold(-1)
	s.class = cl
	s.hold(1)
	s.conn.setClass(cl)
	if cl == ClassNormal && sh.late(s.epoch) {
		sh.arrived(WhatStream, s.opened)
	}
}

// SetStatus gives the response's status code.
func (s *Stream) SetStatus(code int) {
	if code >= 0 && code <= 0xffff {
		s.setState(statusShift, 0xffff, uint64(code))
	}
}

// SetWaiting says whose turn it is.
func (s *Stream) SetWaiting(w WaitingOn) { s.setState(waitingShift, 0xff, uint64(w)) }

// SetStage says how far the stream is.
func (s *Stream) SetStage(st Stage) { s.setState(streamStageShift, 0xff, uint64(st)) }

// SetGRPCStatus gives a gRPC call's status code.
func (s *Stream) SetGRPCStatus(code int) {
	if code >= 0 && code < 0xff {
		s.setState(grpcShift, 0xff, uint64(code)+1)
	}
}

// HalfClosed says that a side has ended its part of the stream while the other one goes on (HTTP/2 END_STREAM): the record
// shows that instead of the connection's FIN.
func (s *Stream) HalfClosed(by Party, now int64) {
	s.halfOwn.Store(now)
	s.setState(halfShift, 0xff, uint64(by))
}

// half is which side is closed, and since when: the stream's own, or else the connection's.
func (s *Stream) half() (Party, int64) {
	if by := Party(s.state.Load() >> halfShift & 0xff); by != ByUnknown {
		return by, s.halfOwn.Load()
	}
	if s.fate == FateOpen {
		return s.conn.halfBy, s.conn.halfAt
	}
	return s.halfBy, s.halfAt
}

func (s *Stream) grpcStatus() uint8 { return uint8(s.state.Load() >> grpcShift) }

func (s *Stream) setState(shift int, mask, v uint64) {
	s.state.Store(s.state.Load()&^(mask<<shift) | v<<shift)
}

// AddBytes counts n bytes of a flow. The stream's last activity is taken from its connection's (Conn.AddBytes), which
// has read the clock.
func (s *Stream) AddBytes(from Party, n int) {
	i := side(from)
	s.bytes[i].Add(int64(n))
	s.last[i].Store(max(s.opened, s.conn.last[i].Load()))
}

// AddMessage counts one message of a flow.
func (s *Stream) AddMessage(from Party) { s.messages[side(from)].Add(1) }

// Answer says what a late stream got; without it, End concludes it from the fate. It does nothing for others.
func (s *Stream) Answer(a Answer) {
	sh := s.conn.shard
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if s.fate == FateOpen {
		s.answered(a)
	}
}

// answered is Answer with mu held.
func (s *Stream) answered(a Answer) {
	sh := s.conn.shard
	if s.answer != AnswerNone || a == AnswerNone || a >= numAnswers || !sh.late(s.epoch) {
		return
	}
	s.answer = a
	if s.class == ClassNormal {
		sh.answered(WhatStream, a, s.opened)
	}
}

// End books the stream's fate and reports whether this call did: the first one wins.
func (s *Stream) End(e End) bool {
	if s.fate != FateOpen {
		return false
	}
	c := s.conn
	sh := c.shard
	e = sh.reg.checked(WhatStream, s.kind, e)

	sh.mu.Lock()
	s.ended = max(e.At, s.opened)
	stage := e.Stage
	switch {
	case e.Fate == Unreachable:
		stage = StageConnect
	case stage == StageConnect:
		stage = s.stage()
	}
	w := s.waiting()
	if e.Fate == Completed {
		w = WaitingNobody
	}
	s.SetStage(stage)
	s.SetWaiting(w)
	for i := range s.last {
		s.last[i].Store(min(s.lastActive(i), s.ended))
	}
	if s.answer == AnswerNone {
		a := AnswerServed
		if e.Fate == Rejected {
			a = AnswerRejected
		}
		s.answered(a)
	}
	if s.class == ClassNormal && (s.headKnown || s.kind.Opaque()) {
		c.setClass(ClassNormal)
	}
	s.hold(-1)
	draining, long := sh.draining(), s.longLived(s.ended)
	survivor := sh.survivor(s.epoch) && s.class == ClassNormal
	if draining {
		s.drainAt, s.late = sh.drain.startedAt, sh.late(s.epoch)
		sh.drain.ended(WhatStream, e.Fate, survivor)
	}
	s.fate, s.by, s.how, s.reason = e.Fate, e.By, e.How, e.Reason
	s.closeCode, s.resetCode = e.CloseCode, e.ResetCode
	s.facts, s.farewell, s.toldAt, s.began, s.halfBy, s.halfAt = c.facts, c.farewell, c.toldAt, c.began, c.halfBy, c.halfAt
	sh.streams.remove(&s.node)
	c.streams.remove(&s.sib)
	sh.countOpen(WhatStream, s.dir, s.kind, -1)
	sh.books.Fates[WhatStream][s.dir][s.kind][e.Fate][e.By]++
	sh.books.Durations[s.dir][s.kind].observe(s.ended - s.opened)

	ordinary := e.Fate == Completed && !long && !draining
	events, told := sh.reg.events.wants(EventEnded, WhatStream), sh.reg.cfg.OnEnd != nil
	if told && ordinary && !sh.rate.allow(s.ended) {
		sh.books.OrdinaryOmitted++
		told = false
	}
	if events || told || survivor {
		s.copyTo(&sh.scratch, s.ended)
	}
	if survivor {
		sh.keepSurvivor(&sh.scratch)
	}
	sh.retireStream(s)
	sh.mu.Unlock()

	if events || told {
		sh.tellEnded(events, told)
	}
	return true
}

// lastActive is when a side sent last. The only stream of a connection has the connection's clock; among several only
// the stream's own is sure.
func (s *Stream) lastActive(i int) int64 {
	if s.fate == FateOpen && s.conn.streams.n == 1 {
		return max(s.opened, s.conn.last[i].Load())
	}
	return s.last[i].Load()
}

func (s *Stream) ownStage() Stage { return Stage(s.state.Load() >> streamStageShift & 0xff) }

// stage is how far the stream is: no further than its connection. The caller holds mu, or owns the stream.
func (s *Stream) stage() Stage {
	if own := s.conn.ownStage(); s.fate == FateOpen && (own == StageConnect || own == StageHandshake) {
		return own
	}
	return s.ownStage()
}

func (s *Stream) ownWaiting() WaitingOn { return WaitingOn(s.state.Load() >> waitingShift & 0xff) }

// waiting is whose turn it is on an open stream. The caller holds mu.
func (s *Stream) waiting() WaitingOn {
	if w, ok := s.conn.waitingAll(); ok {
		return w
	}
	return s.ownWaiting()
}

// longLived says whether a drain window can't outwait the stream: by its kind, its age, or, for a gRPC call, a second
// message either way. The caller holds mu.
func (s *Stream) longLived(now int64) bool {
	if s.kind.LongLived() || now-s.opened > int64(s.conn.shard.reg.cfg.LongLivedAfter) {
		return true
	}
	return s.kind == KindGRPC && (s.messages[0].Load() > 1 || s.messages[1].Load() > 1)
}

func (s *Stream) size() int {
	return int(unsafe.Sizeof(*s)) + cap(s.head) + s.facts.size() + len(s.reason)
}

// reset makes a record from the pool a new one; it keeps the buffer of the head.
func (s *Stream) reset() {
	for i := range s.bytes {
		s.bytes[i].Store(0)
		s.messages[i].Store(0)
	}
	s.kind, s.class, s.answer, s.fate, s.by, s.how = 0, 0, 0, 0, 0, 0
	s.farewell, s.halfBy, s.headKnown, s.late = 0, 0, false, false
	s.method, s.head, s.lens = "", s.head[:0], [5]uint16{}
	s.closeCode, s.resetCode, s.reason = 0, "", ""
	s.ended, s.drainAt, s.toldAt, s.halfAt, s.began, s.facts = 0, 0, 0, 0, 0, nil
}
