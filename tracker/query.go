package tracker

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Limits of Query.
const (
	DefaultLimit = 100
	MaxLimit     = 1000
)

// ErrQuery is wrapped by every error of Query: all of them are the caller's.
var ErrQuery = errors.New("tracker: bad query")

// State selects records by where they are.
type State uint8

// States.
const (
	StateOpen      State = iota
	StateClosed          // in the ring
	StateSurvivors       // open since before the running drain; probes and scrapes left out
	StateAny             // open or closed
	numStates
)

// Sort is the order of a list.
type Sort uint8

// Orders.
const (
	SortOldest Sort = iota // first opened first
	SortNewest             // last opened first
	SortIdle               // silent for longest first
	SortBytes              // most bytes, both ways, first
	SortEnded              // last ended first
	numSorts
)

var (
	stateNames = [numStates]string{"open", "closed", "survivors", "any"}
	sortNames  = [numSorts]string{"oldest", "newest", "idle", "bytes", "ended"}
)

func (s State) String() string { return nameOf(stateNames[:], int(s)) }
func (s Sort) String() string  { return nameOf(sortNames[:], int(s)) }

// ParseState parses a state's name.
func ParseState(name string) (State, error) { return parse[State]("state", stateNames[:], name) }

// ParseSort parses an order's name.
func ParseSort(name string) (Sort, error) { return parse[Sort]("sort", sortNames[:], name) }

// Query selects records. The zero value lists the open connections, oldest first. Nil and zero fields select everything.
type Query struct {
	What      What
	State     State
	Kind      *Kind
	Direction *Direction
	Older     time.Duration // at least this age
	Idle      time.Duration // both sides silent for at least this long
	WaitingOn *WaitingOn
	Fate      Fate
	Conn      uint64 // id of the connection
	Sort      Sort
	Limit     int // 0: DefaultLimit; at most MaxLimit
	// Cursor is the next of the page before, with the same Sort. An order that changes meanwhile (idle, bytes) makes pages
	// approximate: a record may be missed or come twice.
	Cursor string
}

// Query lists records and, when there are more, the cursor of the next page. It sees every record that is there for as
// long as it runs, each once.
func (r *Registry) Query(q Query) (recs []Record, next string, err error) {
	col, err := newCollector(q, r.Now())
	if err != nil {
		return nil, "", err
	}
	for _, s := range r.shards {
		if q.State != StateClosed {
			s.collect(col, q.What, &s.conns, &s.streams)
		}
		if q.State == StateClosed || q.State == StateAny {
			s.collect(col, q.What, &s.connRing.list, &s.streamRing.list)
		}
	}
	return col.page()
}

func (s *Shard) collect(col *collector, what What, conns *list[Conn], streams *list[Stream]) {
	if what == WhatConnection {
		walk(&s.mu, conns, func(c *Conn) bool {
			c.copyTo(col.slot(), col.now)
			col.take()
			return true
		}, col.trim)
		return
	}
	walk(&s.mu, streams, func(st *Stream) bool {
		if col.q.Conn == 0 || col.q.Conn == st.connID {
			st.copyTo(col.slot(), col.now)
			col.take()
		}
		return true
	}, col.trim)
}

// collector keeps the first limit+1 of the records that a query selects, in the query's order. It holds at most one chunk
// more than that.
type collector struct {
	q      Query
	now    int64
	limit  int
	snaps  []snap // snaps[:n] are kept; the buffers of the others are used again
	n      int
	after  *sortKey // of the cursor
	before *sortKey // of the last one that can still matter
}

type sortKey struct {
	key int64
	id  recordID
}

func (a sortKey) compare(b sortKey) int {
	return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.id.conn, b.id.conn), cmp.Compare(a.id.n, b.id.n))
}

func newCollector(q Query, now int64) (*collector, error) {
	col := &collector{q: q, now: now, limit: q.Limit}
	if q.Limit == 0 {
		col.limit = DefaultLimit
	}
	if q.Limit < 0 || q.Limit > MaxLimit {
		return nil, fmt.Errorf("%w: limit %d, want 1 to %d", ErrQuery, q.Limit, MaxLimit)
	}
	if q.What >= numWhats || q.State >= numStates || q.Sort >= numSorts {
		return nil, fmt.Errorf("%w: what %d, state %d, sort %d", ErrQuery, q.What, q.State, q.Sort)
	}
	if q.Cursor != "" {
		k, err := parseCursor(q.Cursor, q.Sort)
		if err != nil {
			return nil, err
		}
		col.after = &k
	}
	col.snaps = make([]snap, col.limit+1+chunkRecords) // here, not under a shard's lock
	return col, nil
}

// slot is where the next record may be copied to. There is one: after a trim at most limit+1 are kept, and a chunk has at
// most chunkRecords.
func (col *collector) slot() *snap { return &col.snaps[col.n] }

// take keeps what was copied to slot if the query wants it.
func (col *collector) take() {
	sn := col.slot()
	if !col.q.selects(sn, col.now) {
		return
	}
	k := col.q.Sort.keyOf(sn)
	if (col.after != nil && k.compare(*col.after) <= 0) || (col.before != nil && k.compare(*col.before) > 0) {
		return
	}
	col.n++
}

// trim drops what is behind the page. It runs between chunks, without the lock.
func (col *collector) trim() bool {
	if col.n <= col.limit+1 {
		return true
	}
	col.sort()
	col.n = col.limit + 1
	col.before = new(col.q.Sort.keyOf(&col.snaps[col.n-1]))
	return true
}

func (col *collector) sort() {
	slices.SortFunc(col.snaps[:col.n], func(a, b snap) int { return col.q.Sort.keyOf(&a).compare(col.q.Sort.keyOf(&b)) })
}

func (col *collector) page() ([]Record, string, error) {
	col.sort()
	recs := make([]Record, 0, min(col.n, col.limit))
	seen := map[recordID]bool{} // a record that ended meanwhile was seen open and closed
	next := ""
	for i := range col.snaps[:col.n] {
		sn := &col.snaps[i]
		if seen[sn.id()] {
			continue
		}
		if len(recs) == col.limit {
			next = cursorOf(col.q.Sort, col.q.Sort.keyOf(&col.snaps[i-1]))
			break
		}
		seen[sn.id()] = true
		recs = append(recs, sn.record(col.now))
	}
	if next == "" && col.before != nil { // doubles took places, and something was dropped
		next = cursorOf(col.q.Sort, col.q.Sort.keyOf(&col.snaps[col.n-1]))
	}
	return recs, next, nil
}

func (q *Query) selects(sn *snap, now int64) bool {
	if sn.ended != 0 {
		now = sn.ended
	}
	switch {
	case q.Conn != 0 && q.Conn != sn.conn,
		q.Kind != nil && *q.Kind != sn.kind,
		q.Direction != nil && *q.Direction != sn.dir,
		q.WaitingOn != nil && *q.WaitingOn != sn.waiting,
		q.Fate != FateOpen && q.Fate != sn.fate,
		q.State == StateSurvivors && !sn.survivor,
		max(now-sn.opened, 0) < int64(q.Older), // what moved after the query began has an age of 0, and is there
		max(now-max(sn.last[0], sn.last[1]), 0) < int64(q.Idle):
		return false
	}
	return true
}

func (s Sort) keyOf(sn *snap) sortKey {
	k := sortKey{id: sn.id()}
	switch s {
	case SortOldest:
		k.key = sn.opened
	case SortNewest:
		k.key = -sn.opened
	case SortIdle:
		k.key = max(sn.last[0], sn.last[1])
	case SortBytes:
		k.key = -(sn.bytes[0] + sn.bytes[1])
	case SortEnded:
		k.key = -sn.ended
	case numSorts:
	}
	return k
}

func cursorOf(s Sort, k sortKey) string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%s %d %d %d", s, k.key, k.id.conn, k.id.n))
}

func parseCursor(text string, s Sort) (sortKey, error) {
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return sortKey{}, fmt.Errorf("%w: cursor %q is not one of ours", ErrQuery, text)
	}
	var name string
	var k sortKey
	if n, err := fmt.Sscanf(string(b), "%s %d %d %d", &name, &k.key, &k.id.conn, &k.id.n); n != 4 || err != nil {
		return sortKey{}, fmt.Errorf("%w: cursor %q is not one of ours", ErrQuery, text)
	}
	if name != s.String() {
		return sortKey{}, fmt.Errorf("%w: cursor is for sort %q, not %q", ErrQuery, name, s)
	}
	return k, nil
}

// Get returns a connection, open or still in the ring, and its streams in the order in which they began, those that ended
// among them as far as the ring has them.
func (r *Registry) Get(id uint64) (conn Record, streams []Record, ok bool) {
	now := r.Now()
	for _, s := range r.shards {
		if sn, found := s.findConn(id, now); found {
			return sn.record(now), s.streamsOf(id, now), true
		}
	}
	return Record{}, nil, false
}

func (s *Shard) findConn(id uint64, now int64) (snap, bool) {
	var sn snap
	found := false
	// Open first: what ends meanwhile is then found in the ring.
	for _, l := range []*list[Conn]{&s.conns, &s.connRing.list} {
		walk(&s.mu, l, func(c *Conn) bool {
			if c.id == id {
				c.copyTo(&sn, now)
				found = true
			}
			return !found
		}, nil)
		if found {
			return sn, true
		}
	}
	return snap{}, false
}

func (s *Shard) streamsOf(id uint64, now int64) []Record {
	var recs []Record
	byN := map[uint32]int{} // what ends meanwhile is found twice; the later finding knows more
	for _, l := range []*list[Stream]{&s.streams, &s.streamRing.list} {
		var found []snap
		walk(&s.mu, l, func(st *Stream) bool {
			if st.connID == id {
				found = append(found, snap{})
				st.copyTo(&found[len(found)-1], now)
			}
			return true
		}, nil)
		for i := range found {
			rec := found[i].record(now)
			if at, dup := byN[found[i].n]; dup {
				recs[at] = rec
				continue
			}
			byN[found[i].n] = len(recs)
			recs = append(recs, rec)
		}
	}
	slices.SortFunc(recs, func(a, b Record) int {
		return cmp.Or(cmp.Compare(len(a.ID), len(b.ID)), cmp.Compare(a.ID, b.ID))
	})
	return recs
}

// OpenAges calls f for every open stream: its age, and whether it is long-lived. f is called outside of locks.
func (r *Registry) OpenAges(now int64, f func(d Direction, k Kind, age time.Duration, longLived bool)) {
	type open struct {
		d    Direction
		k    Kind
		long bool
		age  time.Duration
	}
	buf := make([]open, 0, chunkRecords)
	for _, s := range r.shards {
		walk(&s.mu, &s.streams, func(st *Stream) bool {
			buf = append(buf, open{st.dir, st.kind, st.longLived(now), time.Duration(max(now-st.opened, 0))})
			return true
		}, func() bool {
			for _, o := range buf {
				f(o.d, o.k, o.age, o.long)
			}
			buf = buf[:0]
			return true
		})
	}
}
