package tracker

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// possible are all ends that CanOccur allows.
func possible(w What, k Kind) (ends []End) {
	for _, f := range AllFates() {
		for _, p := range AllParties() {
			if CanOccur(w, k, f, p) {
				ends = append(ends, End{Fate: f, By: p})
			}
		}
	}
	return ends
}

// actor owns a shard and does random, legal things to it.
type actor struct {
	rnd     *rand.Rand
	reg     *Registry
	shard   *Shard
	conns   []*Conn
	streams map[*Conn][]*Stream
	ended   struct{ conns, streams int }
}

func (a *actor) pick(n int) int { return a.rnd.IntN(n) }

func (a *actor) end(w What, k Kind) End {
	ends := possible(w, k)
	e := ends[a.pick(len(ends))]
	e.How, e.Reason, e.At = How(a.pick(int(numHows))), []string{"", "why not"}[a.pick(2)], a.reg.Now()
	return e
}

func (a *actor) step() {
	now := a.reg.Now()
	if len(a.conns) == 0 || (a.pick(6) == 0 && len(a.conns) < 400) {
		c := a.shard.OpenConn(ConnFacts{Direction: Direction(a.pick(2)), Listener: "l", App: "a", Client: "10.0.0.1:1", OpenedAt: now})
		a.conns = append(a.conns, c)
		return
	}
	i := a.pick(len(a.conns))
	c := a.conns[i]
	streams := a.streams[c]
	switch a.pick(20) {
	case 0:
		c.SetKind(Kind(a.pick(int(numKinds))))
	case 1:
		c.SetPeer("sni", "h2")
		c.SetApp("b")
		c.SetStage(Stage(a.pick(int(numStages))))
	case 2:
		c.SetClass(Class(a.pick(int(numClasses))))
	case 3:
		c.Farewell(FarewellKind(a.pick(int(numFarewells))), a.pick(2) == 0, now)
	case 4:
		c.Answer(Answer(a.pick(int(numAnswers))))
		c.HalfClosed(ByApp, now)
	case 5:
		c.Blocked(Party(a.pick(3)), a.pick(2) == 0)
		a.shard.LostTrack(KindHTTP1, fmt.Sprint(a.pick(100)))
		a.shard.DialError(fmt.Sprint(a.pick(100)))
		a.shard.HandshakeError(Inbound, "bad certificate")
	case 6, 7:
		if a.pick(2) == 0 {
			c.EndStreams(a.end(WhatStream, KindTCP))
			a.ended.streams += len(streams)
			delete(a.streams, c)
			streams = nil
		}
		for _, st := range streams {
			if !st.End(a.end(WhatStream, st.Kind())) {
				panic("a stream ended before its end")
			}
			a.ended.streams++
		}
		if !c.End(a.end(WhatConnection, c.Kind())) || c.End(a.end(WhatConnection, c.Kind())) {
			panic("a connection does not end once")
		}
		a.ended.conns++
		delete(a.streams, c)
		a.conns[i] = a.conns[len(a.conns)-1]
		a.conns = a.conns[:len(a.conns)-1]
	case 8, 9, 10, 11:
		if len(streams) < 20 {
			a.streams[c] = append(streams, c.OpenStream(Kind(a.pick(int(numKinds))), now))
		}
	default:
		c.AddBytes(ByClient, 10, now)
		if len(streams) > 0 {
			a.stepStream(c, streams, now)
		}
	}
}

func (a *actor) stepStream(c *Conn, streams []*Stream, now int64) {
	i := a.pick(len(streams))
	st := streams[i]
	st.AddBytes(ByApp, 5)
	st.AddMessage(ByApp)
	switch a.pick(7) {
	case 0:
		st.SetKind(Kind(a.pick(int(numKinds))))
	case 1:
		st.SetHead([]byte("GET"), []byte("/path?query"), []byte("host"), []byte("agent/"+fmt.Sprint(a.pick(3))), nil)
	case 2:
		st.SetClass(Class(a.pick(int(numClasses))))
	case 3:
		st.SetWaiting(WaitingApp)
		st.SetStage(StageResponse)
		st.SetStatus(200)
	case 4:
		st.Answer(Answer(a.pick(int(numAnswers))))
		_, _, _ = st.Late(), c.Late(), c.Told()
	default:
		e := a.end(WhatStream, st.Kind())
		e.At = now
		if !st.End(e) || st.End(e) {
			panic("a stream does not end once")
		}
		a.ended.streams++
		streams[i] = streams[len(streams)-1]
		a.streams[c] = streams[:len(streams)-1]
	}
}

func (a *actor) finish() {
	for _, c := range a.conns {
		a.ended.streams += c.Streams()
		c.EndStreams(a.end(WhatStream, KindTCP))
		c.End(a.end(WhatConnection, c.Kind()))
		a.ended.conns++
	}
}

// TestBooksUnderRandomUse: whatever several loops do while others read, drain and cancel, every snapshot balances and
// Check finds nothing.
func TestBooksUnderRandomUse(t *testing.T) {
	const shards, steps = 3, 20_000
	var told sync.Map // [what]*int would race: OnEnd is called by each loop
	reg := New(Config{
		Shards: shards, RingRecords: 150, RingBytes: 60_000, LongLivedAfter: time.Millisecond, OrdinaryPerSecond: OrdinaryAll, Strict: true,
		OnEnd: func(what What, rec *Record) { told.Store(rec.ID, what) },
	})
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)

	var loops, readers sync.WaitGroup
	stop := make(chan struct{})
	actors := make([]*actor, shards)
	for i := range actors {
		a := &actor{rnd: rand.New(rand.NewPCG(seed, uint64(i))), reg: reg, shard: reg.Shard(i), streams: map[*Conn][]*Stream{}}
		actors[i] = a
		loops.Go(func() {
			for range steps {
				a.step()
			}
			a.finish()
		})
	}
	reader := func(read func(rnd *rand.Rand)) {
		n := uint64(len(actors)) + seed
		readers.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, n))
			for {
				select {
				case <-stop:
					return
				default:
					read(rnd)
				}
			}
		})
	}
	reader(func(*rand.Rand) {
		c := reg.Counts()
		if err := c.Balanced(); err != nil {
			t.Error(err)
		}
		if err := reg.Check(); err != nil {
			t.Error(err)
		}
	})
	reader(func(rnd *rand.Rand) {
		q := Query{What: What(rnd.IntN(2)), State: State(rnd.IntN(int(numStates))), Sort: Sort(rnd.IntN(int(numSorts))), Limit: 1 + rnd.IntN(50)}
		recs, _, err := reg.Query(q)
		if err != nil || len(recs) > q.Limit {
			t.Errorf("query %+v: %d records, %v", q, len(recs), err)
		}
		for i := range recs {
			reg.Get(uint64(rnd.IntN(1000)))
			if recs[i].Age < 0 || (recs[i].Fate == FateOpen) != (recs[i].EndedAt == 0) {
				t.Errorf("torn record %s", recs[i].AppendJSON(nil))
			}
		}
		reg.OpenAges(reg.Now(), func(Direction, Kind, time.Duration, bool) {})
	})
	reader(func(rnd *rand.Rand) {
		reg.BeginDrain("test", reg.Now(), reg.Now()+1e9)
		reg.SetPhase(Phase(rnd.IntN(int(numPhases))))
		reg.Drain()
		rep := reg.Report()
		if b := rep.Short(600); len(b) > 600 {
			t.Errorf("short report of %d bytes", len(b))
		}
		reg.Remaining()
		reg.CancelDrain()
	})
	reader(func(*rand.Rand) {
		events, cancel := reg.Subscribe(10, Interest{})
		for range 5 {
			select {
			case <-events:
			case <-stop:
			}
		}
		cancel()
		cancel()
	})
	loops.Wait()
	close(stop)
	readers.Wait()

	if err := reg.Check(); err != nil {
		t.Error(err)
	}
	c := reg.Counts()
	var conns, streams int
	for _, a := range actors {
		conns, streams = conns+a.ended.conns, streams+a.ended.streams
	}
	for w, want := range map[What]int{WhatConnection: conns, WhatStream: streams} {
		opened, open, ended := c.Sum(w)
		if open != 0 || ended != opened || ended != uint64(want) {
			t.Errorf("%ss: %d opened, %d open, %d ended, want %d", w, opened, open, ended, want)
		}
	}
	n := 0
	told.Range(func(any, any) bool { n++; return true })
	if n != conns+streams {
		t.Errorf("OnEnd was told of %d records, want %d", n, conns+streams)
	}
	if len(c.DialErrors) > maxReasons+1 || len(c.LostTrack) > maxReasons+1 {
		t.Errorf("%d and %d reasons, want a bound", len(c.DialErrors), len(c.LostTrack))
	}
	if r := reg.Remaining(); r.Connections != 0 || r.Streams != 0 {
		t.Errorf("remaining %+v, want nothing", r)
	}
}
