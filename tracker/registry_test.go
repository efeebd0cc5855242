package tracker

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSettings(t *testing.T) {
	reg := New(Config{})
	if reg.Shards() != 1 || reg.Shard(0) == nil {
		t.Errorf("got %d shards, want 1", reg.Shards())
	}
	before := time.Now().UnixNano()
	if now := reg.Now(); now < before-int64(time.Second) || now > before+int64(time.Minute) {
		t.Errorf("now: got %d, want about %d", now, before)
	}
}

func TestKindChanges(t *testing.T) {
	reg, s, clk := newTest(t, Config{})
	c := openConn(s)
	c.SetKind(KindHTTP1)
	c.SetKind(KindHTTP1)
	st := c.OpenStream(KindHTTP1, clk.now())
	st.SetKind(KindSSE)
	n := reg.Counts()
	if n.Opened[WhatConnection][Inbound][KindTCP] != 1 || n.Open[WhatConnection][Inbound][KindHTTP1] != 1 ||
		n.KindChanges[WhatConnection][Inbound][KindTCP][KindHTTP1] != 1 || n.KindChanges[WhatStream][Inbound][KindHTTP1][KindSSE] != 1 {
		t.Errorf("got %+v", n)
	}
	if got := reg.Remaining().ByKind; !cmp.Equal(got, map[string]int{"sse": 1}) {
		t.Errorf("remaining: got %v", got)
	}
	st.End(completedByApp)
	c.End(completedByApp)
	n = reg.Counts()
	if n.Fates[WhatStream][Inbound][KindSSE][Completed][ByApp] != 1 || n.Durations[Inbound][KindSSE].Count != 1 {
		t.Errorf("got %+v", n)
	}
}

func TestImpossibleEnd(t *testing.T) {
	clk := &clock{ns: start}
	reg := New(Config{Now: clk.now})
	c := openConn(reg.Shard(0))
	c.End(End{Fate: Kicked, By: ByClient, Reason: "r"})
	rec, _ := get(t, reg, c)
	if rec.Fate != Failed || rec.By != ByLastcall || rec.Reason != "impossible end: connection tcp kicked by client: r" {
		t.Errorf("got %s", rec.AppendJSON(nil))
	}
	if err := reg.Check(); err != nil {
		t.Error(err)
	}

	_, s, _ := newTest(t, Config{})
	c = openConn(s)
	defer func() {
		if recover() == nil {
			t.Error("a strict registry books an impossible end")
		}
		c.End(completedByApp)
	}()
	c.End(End{})
}

func TestCheckTellsOfStreamsLeftOpen(t *testing.T) {
	reg := New(Config{})
	s := reg.Shard(0)
	c := openConn(s)
	st := c.OpenStream(KindHTTP1, reg.Now())
	c.End(End{Fate: Aborted, By: ByClient, How: HowFIN})
	if err := reg.Check(); err == nil || !strings.Contains(err.Error(), "1 streams open") {
		t.Errorf("got %v, want the bug", err)
	}
	if st.End(completedByApp) {
		t.Error("the stream's end is its connection's, the second one wins")
	}
	n := reg.Counts()
	if err := n.Balanced(); err != nil {
		t.Error(err)
	}
}

func TestCheckTellsOfStreamsAfterTheEnd(t *testing.T) {
	reg := New(Config{RingRecords: 1})
	s := reg.Shard(0)
	c := openConn(s)
	c.End(completedByApp)
	st := c.OpenStream(KindHTTP1, reg.Now())
	warm(s) // the record of c is not used again while the stream points to it
	st.AddBytes(ByApp, 1)
	st.End(completedByApp)
	if err := reg.Check(); err == nil || !strings.Contains(err.Error(), "c1: stream opened after") {
		t.Errorf("got %v, want the bug", err)
	}
	n := reg.Counts()
	if err := n.Balanced(); err != nil {
		t.Error(err)
	}
}

func TestRing(t *testing.T) {
	reg, s, _ := newTest(t, Config{RingRecords: 5})
	for range 20 {
		openConn(s).End(completedByApp)
	}
	recs, _, err := reg.Query(Query{State: StateClosed})
	if want := []string{"c16", "c17", "c18", "c19", "c20"}; err != nil || !cmp.Equal(ids(recs), want) {
		t.Errorf("got %v, %v, want %v", ids(recs), err, want)
	}

	reg, s, clk := newTest(t, Config{RingBytes: 10_000})
	c := openConn(s)
	for range 100 {
		st := c.OpenStream(KindHTTP1, clk.now())
		st.SetHead(get1, []byte(strings.Repeat("/", maxPath)), host1, ua1, nil)
		st.End(completedByApp)
	}
	recs, _, err = reg.Query(Query{What: WhatStream, State: StateClosed})
	if n := len(recs); err != nil || n < 5 || n > 20 || recs[n-1].ID != "c1.100" {
		t.Errorf("%d records of some 900 bytes in 10000: %v, %v", n, ids(recs), err)
	}
	c.End(completedByApp)

	// Bounds that nothing fits into.
	_, s, _ = newTest(t, Config{RingBytes: 1})
	for range 2 * poolRest {
		openConn(s).End(completedByApp)
	}
}

// A handle used once more after its end finds an ended record, even if the ring has given it up.
func TestHandleAfterEnd(t *testing.T) {
	reg, s, clk := newTest(t, Config{RingRecords: 1})
	keep := openConn(s)
	for range 5 * poolRest {
		c := openConn(s)
		st := c.OpenStream(KindHTTP1, clk.now())
		st.End(completedByApp)
		c.End(completedByApp)
		keep.OpenStream(KindHTTP1, clk.now()).End(completedByApp)
		openConn(s).End(completedByApp)
		other := openConn(s) // takes a record that is at rest for longer
		otherStream := other.OpenStream(KindHTTP1, clk.now())
		if st.End(completedByApp) || c.End(completedByApp) {
			t.Fatal("something ended twice")
		}
		st.SetKind(KindSSE)
		st.SetClass(ClassProbe)
		c.SetKind(KindTLS)
		c.SetClass(ClassProbe)
		c.SetApp("elsewhere")
		c.Farewell(FarewellFIN, true, clk.now())
		otherStream.End(completedByApp)
		other.End(completedByApp)
	}
	keep.End(completedByApp)
	n := reg.Counts()
	if _, open, _ := n.Sum(WhatStream); open != 0 {
		t.Errorf("%d streams open", open)
	}
}

func TestOnEnd(t *testing.T) {
	var told []string
	cfg := Config{OrdinaryPerSecond: 2, OnEnd: func(_ What, rec *Record) { told = append(told, rec.ID) }}
	reg, s, clk := newTest(t, cfg)
	c := openConn(s)
	ordinary := func(n int) {
		for range n {
			c.OpenStream(KindHTTP1, clk.now()).End(completedByApp)
		}
	}
	ordinary(5) // two are told of
	c.OpenStream(KindHTTP1, clk.now()).End(End{Fate: Aborted, By: ByClient, How: HowRST})
	c.OpenStream(KindSSE, clk.now()).End(completedByApp)
	old := c.OpenStream(KindHTTP1, clk.now()-20*second)
	old.End(completedByApp)
	clk.advance(1)
	ordinary(1)
	ordinary(4) // one of them
	reg.BeginDrain("test", clk.now(), clk.now())
	ordinary(1)
	c.End(completedByApp)
	want := []string{"c1.1", "c1.2", "c1.6", "c1.7", "c1.8", "c1.9", "c1.10", "c1.14", "c1"}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
	if got := reg.Counts().OrdinaryOmitted; got != 6 {
		t.Errorf("omitted: got %d, want 6", got)
	}
}

func TestSubscribe(t *testing.T) {
	reg, s, clk := newTest(t, Config{})
	events, cancel := reg.Subscribe(4, Interest{})
	c := openConn(s)
	st := c.OpenStream(KindHTTP1, clk.now())
	c.Farewell(FarewellFIN, true, clk.now())
	c.Farewell(FarewellFIN, true, clk.now()) // not the first
	reg.BeginDrain("test", clk.now(), clk.now())
	reg.SetPhase(Draining)
	st.End(completedByApp) // the channel is full
	read := func(n int) (out []string) {
		for range n {
			ev := <-events
			id := ""
			if ev.Record != nil {
				id = " " + ev.Record.ID
			}
			if ev.Dropped > 0 {
				id += " behind a gap"
			}
			out = append(out, ev.Type.String()+id)
		}
		return out
	}
	if diff := cmp.Diff([]string{"opened c1", "opened c1.1", "farewell c1", "phase"}, read(4)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	c.End(completedByApp)
	if diff := cmp.Diff([]string{"ended c1 behind a gap"}, read(1)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	cancel()
	cancel()
	if _, ok := <-events; ok {
		t.Error("the channel is open after the subscription's end")
	}
}

// What a subscriber does not want takes no room, and what nobody wants is not made.
func TestInterest(t *testing.T) {
	reg, s, clk := newTest(t, Config{})
	ended, stop := reg.Subscribe(3, Interest{Types: []EventType{EventEnded, EventPhase}, What: []What{WhatStream}})
	sockets, leave := reg.Subscribe(3, Interest{Types: []EventType{EventOpened, EventEnded}, Query: &Query{What: WhatStream, Kind: new(KindWebSocket)}})
	c := openConn(s)
	c.Farewell(FarewellFIN, true, clk.now())
	one, two := c.OpenStream(KindHTTP1, clk.now()), c.OpenStream(KindWebSocket, clk.now())
	reg.BeginDrain("test", clk.now(), clk.now())
	one.End(completedByApp)
	two.End(completedByApp)
	c.End(completedByApp)
	stop()
	leave()
	var got []string
	for _, ch := range []<-chan Event{ended, sockets} {
		for ev := range ch {
			text := ev.Type.String()
			if ev.Record != nil {
				text += " " + ev.Record.ID
			}
			got = append(got, text)
			if ev.Dropped > 0 {
				t.Errorf("%d dropped before %s", ev.Dropped, text)
			}
		}
	}
	if diff := cmp.Diff([]string{"phase", "ended c1.1", "ended c1.2", "opened c1.2", "ended c1.2"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if reg.events.wants(EventEnded, WhatStream) {
		t.Error("nobody is left, and something is wanted")
	}
}

func TestReasonsAreBounded(t *testing.T) {
	reg, s, _ := newTest(t, Config{})
	for i := range 200 {
		s.DialError(strings.Repeat("x", i))
		s.LostTrack(KindHTTP1, strings.Repeat("x", i))
		s.HandshakeError(Outbound, "bad")
	}
	c := reg.Counts()
	var dial, lost uint64
	for _, r := range c.DialErrors {
		dial += r.N
	}
	for _, r := range c.LostTrack {
		lost += r.N
	}
	if dial != 200 || lost != 200 || len(c.DialErrors) != maxReasons+1 || len(c.LostTrack) != maxReasons+1 {
		t.Errorf("got %d of %d reasons, %d of %d", dial, len(c.DialErrors), lost, len(c.LostTrack))
	}
	if diff := cmp.Diff([]ReasonCount{{Reason: "bad", N: 200}}, c.HandshakeErrors[Outbound]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
