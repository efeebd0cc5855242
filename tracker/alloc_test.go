package tracker

import (
	"testing"
	"unsafe"
)

// warm fills rings and pools so that what follows is the steady state.
func warm(s *Shard) {
	for range 4 * poolRest {
		c := openConn(s)
		exchange(c, s.reg.Now())
		c.End(completedByApp)
	}
}

var (
	get1  = []byte("GET")
	path1 = []byte("/a/path/of/some/length?with=query")
	host1 = []byte("service.namespace.svc")
	ua1   = []byte("Go-http-client/1.1")
)

// exchange is what an HTTP/1 request costs the tracker.
func exchange(c *Conn, now int64) {
	c.AddBytes(ByClient, 120, now)
	st := c.OpenStream(KindHTTP1, now)
	st.AddBytes(ByClient, 120)
	st.SetHead(get1, path1, host1, ua1, nil)
	st.SetWaiting(WaitingApp)
	st.SetStage(StageResponse)
	c.AddBytes(ByApp, 300, now)
	st.AddBytes(ByApp, 300)
	st.SetStatus(200)
	st.End(End{Fate: Completed, By: ByApp, How: HowProtocol, At: now + 1})
}

func TestNoAllocations(t *testing.T) {
	reg := New(Config{RingRecords: 10, OrdinaryPerSecond: OrdinaryNone, OnEnd: func(What, *Record) {}})
	s := reg.Shard(0)
	c := openConn(s)
	warm(s)
	if n := testing.AllocsPerRun(1000, func() { exchange(c, reg.Now()) }); n != 0 {
		t.Errorf("an exchange: got %v allocations, want 0", n)
	}
	reg.BeginDrain("test", reg.Now(), reg.Now())
	if n := testing.AllocsPerRun(1000, func() { c.AddBytes(ByApp, 1, 1); c.Blocked(ByApp, true); c.Late() }); n != 0 {
		t.Errorf("bytes: got %v allocations, want 0", n)
	}
}

// A connection's words are the one thing that a new connection allocates.
func TestConnAllocations(t *testing.T) {
	reg := New(Config{RingRecords: 10})
	s := reg.Shard(0)
	warm(s)
	n := testing.AllocsPerRun(1000, func() {
		c := s.OpenConn(ConnFacts{Listener: "l", App: "a", Client: "c"})
		c.End(completedByApp)
	})
	if n > 1 {
		t.Errorf("a connection: got %v allocations, want 1", n)
	}
}

// The budget of an idle connection's record, its client's address included, is 450 bytes.
func TestRecordSizes(t *testing.T) {
	const address = len("255.255.255.255:65535")
	if got := int(unsafe.Sizeof(Conn{})+unsafe.Sizeof(facts{})) + address; got > 450 {
		t.Errorf("a connection takes %d bytes, want at most 450", got)
	}
	t.Logf("Conn %d, facts %d, Stream %d, snap %d bytes", unsafe.Sizeof(Conn{}), unsafe.Sizeof(facts{}), unsafe.Sizeof(Stream{}), unsafe.Sizeof(snap{}))
}

func BenchmarkExchange(b *testing.B) {
	reg := New(Config{})
	s := reg.Shard(0)
	c := openConn(s)
	for range 2 * DefaultRingRecords {
		exchange(c, reg.Now())
	}
	now := reg.Now()
	b.ReportAllocs()
	for b.Loop() {
		exchange(c, now)
	}
}

func BenchmarkStreamBeginEnd(b *testing.B) {
	reg := New(Config{})
	c := openConn(reg.Shard(0))
	for range 2 * DefaultRingRecords {
		exchange(c, reg.Now())
	}
	now := reg.Now()
	b.ReportAllocs()
	for b.Loop() {
		c.OpenStream(KindHTTP1, now).End(End{Fate: Completed, By: ByApp, At: now})
	}
}

func BenchmarkAddBytes(b *testing.B) {
	c := openConn(New(Config{}).Shard(0))
	b.ReportAllocs()
	for b.Loop() {
		c.AddBytes(ByApp, 100, 1)
	}
}

func open5000(b *testing.B) *Registry {
	reg := New(Config{})
	for range 5000 {
		c := openConn(reg.Shard(0))
		exchange(c, reg.Now())
		c.OpenStream(KindSSE, reg.Now()).SetHead(get1, path1, host1, ua1, nil)
	}
	b.ReportAllocs()
	return reg
}

func BenchmarkQuery5000(b *testing.B) {
	reg := open5000(b)
	for b.Loop() {
		if recs, _, err := reg.Query(Query{What: WhatStream}); err != nil || len(recs) != DefaultLimit {
			b.Fatal(len(recs), err)
		}
	}
}

func BenchmarkCounts(b *testing.B) {
	reg := open5000(b)
	for b.Loop() {
		reg.Counts()
	}
}

func BenchmarkAppendJSON(b *testing.B) {
	recs, _, err := open5000(b).Query(Query{What: WhatStream, Limit: 1})
	if err != nil {
		b.Fatal(err)
	}
	var buf []byte
	for b.Loop() {
		buf = recs[0].AppendJSON(buf[:0])
	}
}
