package tracker

import (
	"sync"
	"sync/atomic"
)

// Pools of records that left the ring. A record rests behind poolRest others before it is used again, so that a handle
// used once too often right after its End finds an ended record and not somebody else's. What exceeds poolMax is left to
// the garbage collector: a peak does not hold its memory for ever.
const (
	poolRest = 64
	poolMax  = 1024
)

// Shard is the part of a registry that one goroutine (an event loop) owns. Its lock is taken once per begin, head and end
// of a record and is contended only by readers, who hold it for short. Bytes are counted without it.
type Shard struct {
	// Immutable.
	reg *Registry

	// Atomic; added to by the owner.
	bytes [numDirections][2]atomic.Int64

	mu sync.Mutex
	// Guarded by mu; written by the owner only.
	books       Books
	conns       list[Conn]   // open
	streams     list[Stream] // open
	holdConns   int          // open connections that hold a drain: class normal
	holdStreams [numKinds]int
	connRing    ring[Conn]
	streamRing  ring[Stream]
	freeConns   list[Conn]
	freeStreams list[Stream]
	endedBytes  [numDirections][2]int64 // of connections that ended; Check compares
	bug         error                   // the first misuse seen

	// Guarded by mu; written by the owner and by the registry's drain methods.
	epoch         uint32 // odd: a drain is running. A record keeps the epoch it began in
	drain         drainBooks
	survivorsOpen [numKinds]int // streams of class normal

	// Owned by the shard's goroutine.
	scratch snap
	rate    rate
	agents  map[string]string // user agents, so that connections share strings
	journal *openTable        // nil without one
}

func newShard(r *Registry) *Shard {
	share := func(total int) int { return (total + r.cfg.Shards - 1) / r.cfg.Shards }
	s := &Shard{reg: r, agents: map[string]string{}}
	s.connRing.maxRecords, s.connRing.maxBytes = share(r.cfg.RingRecords), share(r.cfg.RingBytes)
	s.streamRing.maxRecords, s.streamRing.maxBytes = share(r.cfg.RingRecords), share(r.cfg.RingBytes)
	s.drain.lastLate = [numWhats]int64{-1, -1}
	s.rate.limit = r.cfg.OrdinaryPerSecond
	if s.rate.limit > 0 {
		s.rate.limit = share(s.rate.limit)
	}
	return s
}

// OpenConn registers a connection. Register it before anything else is done with it: before the dial, before a policy
// is asked. Its kind is KindTCP until SetKind.
func (s *Shard) OpenConn(f ConnFacts) *Conn {
	if f.OpenedAt == 0 {
		f.OpenedAt = s.reg.Now()
	}
	id := s.reg.lastID.Add(1)
	words := &facts{listener: f.Listener, app: f.App, client: f.Client}

	s.mu.Lock()
	c := s.newConn()
	c.id, c.facts, c.opened, c.epoch, c.dir = id, words, f.OpenedAt, s.epoch, f.Direction
	c.kind = KindTCP
	c.last[0].Store(f.OpenedAt)
	c.last[1].Store(f.OpenedAt)
	s.conns.pushBack(&c.node)
	s.books.Opened[WhatConnection][c.dir][c.kind]++
	s.countOpen(WhatConnection, c.dir, c.kind, 1)
	s.holdConns++
	tell := s.reg.events.wants(EventOpened, WhatConnection)
	if tell {
		c.copyTo(&s.scratch, c.opened)
	}
	s.mu.Unlock()

	if tell {
		s.reg.publish(EventOpened, &s.scratch, c.opened)
	}
	return c
}

// countOpen adds n to what is open, in the books and in the journal. The caller holds mu.
func (s *Shard) countOpen(w What, d Direction, k Kind, n int64) {
	s.books.Open[w][d][k] += n
	if s.journal != nil {
		s.journal[w][d][k] += n
	}
}

// draining says whether a drain is running. The caller holds mu.
func (s *Shard) draining() bool { return s.epoch%2 == 1 }

// survivor says whether an open record of that epoch was open when the running drain began. The caller holds mu.
func (s *Shard) survivor(epoch uint32) bool { return s.draining() && epoch != s.epoch }

// late says whether an open record of that epoch began during the running drain. The caller holds mu.
func (s *Shard) late(epoch uint32) bool { return s.draining() && epoch == s.epoch }

// noteBug keeps the first misuse for Check. The caller holds mu.
func (s *Shard) noteBug(err error) {
	if s.bug == nil {
		s.bug = err
	}
}

// holdConn adds n to the connections that hold a drain. The caller holds mu.
func (s *Shard) holdConn(n int) {
	s.holdConns += n
	if s.holdConns == 0 && n < 0 && s.draining() {
		s.reg.signalChanged()
	}
}

// answered counts a late arrival of class normal. The caller holds mu.
func (s *Shard) answered(w What, a Answer, opened int64) {
	s.books.Late[w][a]++
	s.drain.late[w][a]++
	s.arrived(w, opened)
}

// arrived notes when a late arrival of class normal came. The caller holds mu.
func (s *Shard) arrived(w What, opened int64) {
	s.drain.lastLate[w] = max(s.drain.lastLate[w], opened-s.drain.startedAt, 0)
}

// newConn takes a clean record from the pool or makes one. The caller holds mu.
func (s *Shard) newConn() *Conn {
	if s.freeConns.n <= poolRest {
		c := &Conn{shard: s}
		c.node.rec = c
		return c
	}
	c := s.freeConns.popFront().rec
	c.reset()
	return c
}

// newStream is newConn for streams.
func (s *Shard) newStream() *Stream {
	if s.freeStreams.n <= poolRest {
		st := &Stream{}
		st.node.rec, st.sib.rec = st, st
		return st
	}
	st := s.freeStreams.popFront().rec
	st.reset()
	return st
}

// retireConn puts an ended connection into the ring; what the ring gives up goes to the pool. The caller holds mu.
func (s *Shard) retireConn(c *Conn) {
	s.connRing.push(&c.node, c.size())
	for s.connRing.over() {
		old := s.connRing.pop((*Conn).size)
		// One with open streams is somebody's bug, noted at its End; its streams still point to it.
		if old.streams.n == 0 && s.freeConns.n < poolMax {
			s.freeConns.pushBack(&old.node)
		}
	}
}

// retireStream is retireConn for streams.
func (s *Shard) retireStream(st *Stream) {
	s.streamRing.push(&st.node, st.size())
	for s.streamRing.over() {
		if old := s.streamRing.pop((*Stream).size); s.freeStreams.n < poolMax {
			s.freeStreams.pushBack(&old.node)
		}
	}
}

// agent returns a user agent as a string that connections share.
func (s *Shard) agent(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	b = clip(b, maxUserAgent)
	if a, ok := s.agents[string(b)]; ok {
		return a
	}
	if len(s.agents) >= maxAgents {
		clear(s.agents)
	}
	a := string(b)
	s.agents[a] = a
	return a
}

// rate lets limit things per second through: a plain window per second of the records' own time.
type rate struct {
	limit  int // per second; OrdinaryAll, OrdinaryNone
	second int64
	n      int
}

func (r *rate) allow(at int64) bool {
	switch {
	case r.limit == OrdinaryAll:
		return true
	case r.limit < 0:
		return false
	}
	if second := at / 1e9; second != r.second {
		r.second, r.n = second, 0
	}
	r.n++
	return r.n <= r.limit
}
