package tracker

// snap is a flat copy of a record, taken under the shard's lock without an allocation (once its buffer has grown) and
// turned into a Record outside of it.
type snap struct {
	what                  What
	conn                  uint64
	n                     uint32 // of a stream; 0: the connection
	kind                  Kind
	class                 Class
	dir                   Direction
	stage                 Stage
	waiting               WaitingOn
	fate                  Fate
	by                    Party
	how                   How
	halfBy                Party
	farewell              FarewellKind
	obeyed                tri
	longLived             bool
	late, survivor        bool
	facts                 *facts
	method, agent         string
	head                  []byte // own buffer
	lens                  [5]uint16
	status                uint16
	grpcStatus            uint8 // plus one; 0: none
	closeCode             int
	resetCode, reason     string
	opened, ended, halfAt int64 // ended 0: open
	toldAt                int64
	drainAt               int64 // start of the drain that ran at the end, or that runs now and matters to late; 0: none
	bytes, last, messages [2]int64
	began                 uint32
	open, total           int // streams of a connection
}

// tri is a bool that may be unknown.
type tri uint8

const (
	unknown tri = iota
	no
	yes
)

func triOf(b bool) tri {
	if b {
		return yes
	}
	return no
}

// id tells records apart and orders those that began at the same time.
func (sn *snap) id() recordID { return recordID{conn: sn.conn, n: sn.n} }

type recordID struct {
	conn uint64
	n    uint32
}

// copyTo fills sn from the connection. The caller holds mu. now is ignored once the connection has ended.
func (c *Conn) copyTo(sn *snap, now int64) {
	head := sn.head[:0]
	*sn = snap{
		what: WhatConnection, conn: c.id, kind: c.kind, class: c.class, dir: c.dir,
		fate: c.fate, by: c.by, how: c.how, reason: c.reason, facts: c.facts, agent: c.agent, head: head,
		opened: c.opened, ended: c.ended, halfBy: c.halfBy, halfAt: c.halfAt,
		farewell: c.farewell, toldAt: c.toldAt, began: c.began, drainAt: c.drainAt,
		open: c.streams.n, total: int(c.total),
	}
	for i := range sn.bytes {
		sn.bytes[i], sn.last[i] = c.bytes[i].Load(), c.last[i].Load()
	}
	if c.fate == FateOpen {
		sn.stage, sn.waiting, sn.longLived = c.stage(), c.waiting(), c.longLived(now)
		c.shard.copyDrain(sn, c.epoch)
	} else {
		sn.stage, sn.waiting, sn.longLived = c.ownStage(), c.lastWaiting, c.kind.LongLived()
		sn.late, sn.survivor = c.late, c.drainAt != 0 && !c.late && c.class == ClassNormal
		sn.obeyed = triOf(c.obeyed())
	}
}

// copyTo fills sn from the stream. The caller holds mu. now is ignored once the stream has ended.
func (s *Stream) copyTo(sn *snap, now int64) {
	head := append(sn.head[:0], s.head...)
	*sn = snap{
		what: WhatStream, conn: s.connID, n: s.n, kind: s.kind, class: s.class, dir: s.dir,
		fate: s.fate, by: s.by, how: s.how, reason: s.reason, facts: s.facts, head: head, lens: s.lens, method: s.method,
		opened: s.opened, ended: s.ended,
		farewell: s.farewell, toldAt: s.toldAt, began: s.began, drainAt: s.drainAt,
		status: uint16(s.state.Load() >> statusShift), grpcStatus: s.grpcStatus(), closeCode: s.closeCode, resetCode: s.resetCode,
	}
	sn.halfBy, sn.halfAt = s.half()
	for i := range sn.bytes {
		sn.bytes[i], sn.messages[i] = s.bytes[i].Load(), s.messages[i].Load()
		sn.last[i] = s.lastActive(i)
	}
	if s.fate == FateOpen {
		c := s.conn
		sn.facts, sn.farewell, sn.toldAt, sn.began = c.facts, c.farewell, c.toldAt, c.began
		sn.stage, sn.waiting, sn.longLived = s.stage(), s.waiting(), s.longLived(now)
		c.shard.copyDrain(sn, s.epoch)
	} else {
		sn.stage, sn.waiting, sn.longLived = s.ownStage(), s.ownWaiting(), s.longLived(s.ended)
		sn.late, sn.survivor = s.late, s.drainAt != 0 && !s.late && s.class == ClassNormal
		sn.obeyed = triOf(s.fate == Completed || s.fate == Drained)
	}
}

// copyDrain fills in what an open record has to do with the running drain. Only class normal survives: the rest holds
// nothing. The caller holds mu.
func (s *Shard) copyDrain(sn *snap, epoch uint32) {
	sn.late, sn.survivor = s.late(epoch), s.survivor(epoch) && sn.class == ClassNormal
	if sn.late {
		sn.drainAt = s.drain.startedAt
	}
}

// clone is a copy that stays when sn is used again.
func (sn *snap) clone() snap {
	out := *sn
	out.head = append([]byte(nil), sn.head...)
	return out
}

// words of the head.
func (sn *snap) words() (method, path, authority, agent, identity string) {
	at := 0
	next := func(i int) string {
		w := string(sn.head[at : at+int(sn.lens[i])])
		at += int(sn.lens[i])
		return w
	}
	method, path, authority, agent, identity = next(headMethod), next(headPath), next(headAuthority), next(headAgent), next(headIdentity)
	if sn.method != "" {
		method = sn.method
	}
	if sn.what == WhatConnection {
		agent = sn.agent
	}
	if sn.facts.identity != "" {
		identity = sn.facts.identity // what a certificate proves is more than what a header says
	}
	return method, path, authority, agent, identity
}
