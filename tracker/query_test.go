package tracker

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestQuery(t *testing.T) {
	reg, _, clk := newTest(t, Config{Shards: 2})
	var conns []*Conn
	for i := range 10 {
		s := reg.Shard(i % 2)
		c := s.OpenConn(ConnFacts{Direction: Direction(i / 5), Client: "c"})
		c.SetStage(StageIdle)
		st := c.OpenStream([]Kind{KindHTTP1, KindSSE, KindWebSocket}[i%3], clk.now())
		st.SetWaiting([]WaitingOn{WaitingClient, WaitingApp}[i%2])
		c.AddBytes(ByApp, 100-i, clk.now()+int64(i%4)*second/2)
		st.AddBytes(ByApp, 100-i)
		conns = append(conns, c)
		clk.advance(1)
	}
	clk.advance(10)
	end := func(i int, f Fate, by Party) {
		conns[i].EndStreams(End{Fate: f, By: by})
		conns[i].End(End{Fate: f, By: by})
		clk.advance(1)
	}
	end(9, Aborted, ByClient)
	end(0, Completed, ByApp)

	tests := []struct {
		name string
		q    Query
		want string
	}{
		{"open connections", Query{}, "c2 c3 c4 c5 c6 c7 c8 c9"},
		{"closed", Query{State: StateClosed}, "c1 c10"},
		{"any", Query{State: StateAny, Sort: SortNewest}, "c10 c9 c8 c7 c6 c5 c4 c3 c2 c1"},
		{"last ended", Query{State: StateClosed, Sort: SortEnded}, "c1 c10"},
		{"streams", Query{What: WhatStream}, "c2.1 c3.1 c4.1 c5.1 c6.1 c7.1 c8.1 c9.1"},
		{"kind", Query{What: WhatStream, Kind: new(KindSSE)}, "c2.1 c5.1 c8.1"},
		{"direction", Query{Direction: new(Outbound)}, "c6 c7 c8 c9"},
		{"older", Query{Older: 16 * time.Second}, "c2 c3 c4 c5 c6 c7"},
		{"idle", Query{Idle: 17 * time.Second}, "c2 c3 c4 c5"},
		{"most idle", Query{Sort: SortIdle, Limit: 3}, "c2 c3 c5"},
		{"most bytes", Query{Sort: SortBytes, Limit: 3}, "c2 c3 c4"},
		{"waiting on", Query{What: WhatStream, WaitingOn: new(WaitingApp)}, "c2.1 c4.1 c6.1 c8.1"},
		{"fate", Query{State: StateAny, Fate: Aborted}, "c10"},
		{"of a connection", Query{What: WhatStream, Conn: 4}, "c4.1"},
		{"a connection", Query{Conn: 4}, "c4"},
		{"survivors without a drain", Query{State: StateSurvivors}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			recs, next, err := reg.Query(tt.q)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(ids(recs), " "); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			if (next != "") != (tt.q.Limit > 0) {
				t.Errorf("next is %q", next)
			}
		})
	}
	for i := range conns[1:9] {
		end(i+1, Completed, ByApp)
	}
}

// A query reads the clock first and the records after: what moved or was opened in between is listed all the same.
func TestQuerySeesWhatMovesMeanwhile(t *testing.T) {
	reg, s, clk := newTest(t, Config{})
	old := openConn(s)
	st := old.OpenStream(KindHTTP2, clk.now())
	clk.advance(10)
	old.AddBytes(ByApp, 1, clk.now())
	st.AddBytes(ByApp, 1)
	fresh := openConn(s)
	clk.advance(-1) // the query's reading is a second older than all this
	for what, want := range map[What]string{WhatConnection: "c1 c2", WhatStream: "c1.1"} {
		for _, state := range []State{StateOpen, StateAny} {
			recs, _, err := reg.Query(Query{What: what, State: state})
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(ids(recs), " "); got != want {
				t.Errorf("%v %v: got %s, want %s", what, state, got, want)
			}
		}
	}
	if recs, _, err := reg.Query(Query{Idle: 1}); err != nil || len(recs) != 0 {
		t.Errorf("idle for 1 ns: got %v (%v), want none", ids(recs), err)
	}
	clk.advance(1)
	old.EndStreams(completedByApp)
	for _, c := range []*Conn{old, fresh} {
		c.End(completedByApp)
	}
}

func TestQueryPages(t *testing.T) {
	reg, s, clk := newTest(t, Config{})
	var conns []*Conn
	for i := range 3*chunkRecords + 7 {
		conns = append(conns, openConn(s))
		if i%5 == 0 {
			clk.advance(0.001)
		}
	}
	for _, order := range []Sort{SortOldest, SortNewest, SortIdle, SortBytes, SortEnded} {
		for _, limit := range []int{0, 17, 300, 1000} {
			seen := map[string]int{}
			q := Query{Sort: order, Limit: limit}
			pages := 0
			for {
				recs, next, err := reg.Query(q)
				if err != nil {
					t.Fatal(err)
				}
				for i := range recs {
					seen[recs[i].ID]++
				}
				pages++
				if next == "" {
					break
				}
				q.Cursor = next
			}
			if len(seen) != len(conns) {
				t.Errorf("sort %s, limit %d: %d records in %d pages, want %d", order, limit, len(seen), pages, len(conns))
			}
			for id, n := range seen {
				if n != 1 {
					t.Errorf("sort %s, limit %d: %s came %d times", order, limit, id, n)
				}
			}
		}
	}
	for _, c := range conns {
		c.End(completedByApp)
	}
}

func TestQueryErrors(t *testing.T) {
	reg := New(Config{})
	for name, q := range map[string]Query{
		"limit too high":      {Limit: MaxLimit + 1},
		"limit negative":      {Limit: -1},
		"no such sort":        {Sort: numSorts},
		"no such state":       {State: numStates},
		"cursor not ours":     {Cursor: "???"},
		"cursor of nothing":   {Cursor: "aGVsbG8"},
		"cursor of a sort":    {Cursor: cursorOf(SortNewest, sortKey{}), Sort: SortOldest},
		"no such record kind": {What: numWhats},
	} {
		if _, _, err := reg.Query(q); !errors.Is(err, ErrQuery) {
			t.Errorf("%s: got %v, want ErrQuery", name, err)
		}
	}
	if _, _, ok := reg.Get(7); ok {
		t.Error("an unknown connection is found")
	}
}

func TestOpenAges(t *testing.T) {
	reg, s, clk := newTest(t, Config{})
	c := openConn(s)
	for _, k := range AllKinds() {
		c.OpenStream(k, clk.now())
	}
	got := map[string]bool{}
	ages := func() {
		reg.OpenAges(clk.now(), func(_ Direction, k Kind, age time.Duration, long bool) { got[k.String()+" "+age.String()] = long })
	}
	clk.advance(10)
	ages()
	clk.advance(1)
	ages()
	if len(got) != 16 || got["http1 10s"] || !got["http1 11s"] || !got["sse 10s"] || !got["tcp 10s"] || got["grpc 10s"] {
		t.Errorf("got %v", got)
	}
	for i, from := range []Party{ByClient, ByApp} {
		call := c.OpenStream(KindGRPC, clk.now())
		for n, want := range []bool{false, true} {
			call.AddMessage(from)
			_, streams := get(t, reg, c)
			if got := streams[8+i].LongLived; got != want {
				t.Errorf("a call with %d messages from the %s is long-lived: got %v, want %v", n+1, from, got, want)
			}
		}
	}
	c.EndStreams(completedByApp)
	c.End(completedByApp)
}
