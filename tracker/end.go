package tracker

import "fmt"

// End is how a connection or stream ended.
type End struct {
	Fate Fate
	By   Party
	How  How
	// Stage is how far it had come. The zero value, StageConnect, stands for the stage the record knows of itself (which
	// is StageConnect as long as nothing else was said); an Unreachable end is always at StageConnect.
	Stage  Stage
	Reason string // a few words
	// CloseCode is WebSocket's (RFC 6455 section 7.4), 0 if none was seen.
	CloseCode int
	// ResetCode is the name of an HTTP/2 error code (RFC 9113 section 7).
	ResetCode string
	At        int64 // ns since the epoch; 0: now
}

// checked returns an end that can be booked.
func (r *Registry) checked(what What, k Kind, e End) End {
	e.Reason = clipString(e.Reason, maxReason)
	if e.At == 0 {
		e.At = r.Now()
	}
	if CanOccur(what, k, e.Fate, e.By) {
		return e
	}
	reason := fmt.Sprintf("impossible end: %s %s %s by %s", what, k, e.Fate, e.By)
	if r.cfg.Strict {
		panic("tracker: " + reason)
	}
	if e.Reason != "" {
		reason += ": " + e.Reason
	}
	e.Fate, e.By, e.Reason = Failed, ByLastcall, clipString(reason, maxReason)
	return e
}

// EndStreams ends every stream that is still open, each at its own stage; e.Stage is not used. It is for a connection
// that ends under its streams.
func (c *Conn) EndStreams(e End) {
	e.Stage = StageConnect // stands for the stream's own
	if c.streams.n > 0 {
		c.broke, c.lastWaiting = c.stage(), c.waiting()
	}
	for st := c.streams.front(); st != nil; st = c.streams.front() {
		own := e
		// The app's answer was whole; what was missing of the request was not wanted any more.
		if by := Party(st.state.Load() >> halfShift & 0xff); by == ByApp && (st.kind == KindHTTP2 || st.kind == KindGRPC) && e.Fate == Aborted {
			own.Fate, own.By, own.How = Completed, ByApp, HowProtocol
		}
		st.End(own)
	}
}

// End books the connection's fate and reports whether this call did: the first one wins. Its streams must have ended
// before, by their own fates or through EndStreams; those that did not are ended with it, and Check tells of the bug.
func (c *Conn) End(e End) bool {
	if c.fate != FateOpen {
		return false
	}
	s := c.shard
	e = s.reg.checked(WhatConnection, c.kind, e)
	left := c.streams.n
	c.EndStreams(e)
	if e.Fate == Completed || e.Fate == Drained { // nothing was broken off
		c.lastWaiting, c.broke = WaitingNobody, StageConnect
	}

	s.mu.Lock()
	if left > 0 {
		s.noteBug(fmt.Errorf("tracker: c%d: ended with %d streams open", c.id, left))
	}
	c.ended = max(e.At, c.opened)
	stage := e.Stage
	switch {
	case e.Fate == Unreachable:
		stage = StageConnect
	case stage == StageConnect && c.broke != StageConnect:
		stage = c.broke
	case stage == StageConnect:
		stage = c.stage()
		if stage == StageIdle && c.kind.Opaque() && c.total > 0 {
			stage = StageTunnel // such a connection is never idle: it is its stream
		}
	}
	c.SetStage(stage)
	if c.answer == AnswerNone {
		a := AnswerServed
		if e.Fate == Rejected {
			a = AnswerRejected
		}
		c.answered(a)
	}
	if c.class == ClassNormal {
		s.holdConn(-1)
	}
	if s.draining() {
		c.drainAt, c.late = s.drain.startedAt, s.late(c.epoch)
		s.drain.ended(WhatConnection, e.Fate, s.survivor(c.epoch) && c.class == ClassNormal)
	}
	// Under the lock from here on there is a fate: readers see either all of the end or nothing.
	c.fate, c.by, c.how, c.reason = e.Fate, e.By, e.How, e.Reason
	if c.farewell != FarewellNone {
		s.books.Farewells[c.farewell][bit(c.obeyed())]++
	}
	s.conns.remove(&c.node)
	s.countOpen(WhatConnection, c.dir, c.kind, -1)
	s.books.Fates[WhatConnection][c.dir][c.kind][e.Fate][e.By]++
	for i := range c.bytes {
		s.endedBytes[c.dir][i] += c.bytes[i].Load()
	}
	events := s.reg.events.wants(EventEnded, WhatConnection)
	tell := events || s.reg.cfg.OnEnd != nil
	if tell {
		c.copyTo(&s.scratch, c.ended)
	}
	s.retireConn(c)
	s.mu.Unlock()

	if tell {
		s.tellEnded(events, true)
	}
	return true
}

// obeyed says whether an ended connection left by itself after our farewell, and began nothing more.
func (c *Conn) obeyed() bool { return c.began == 0 && (c.fate == Drained || c.fate == Completed) }
