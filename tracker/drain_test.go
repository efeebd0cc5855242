package tracker

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDrain(t *testing.T) {
	reg, s, clk := newTest(t, Config{})
	if v := reg.Drain(); v.Phase != Serving || v.StartedAt != 0 || v.Late.LastConnection != nil {
		t.Errorf("before a drain: got %+v", v)
	}
	idle, busy, probe := openConn(s), openConn(s), openConn(s)
	sse := busy.OpenStream(KindHTTP1, clk.now())
	sse.SetHead(get1, path1, host1, ua1, nil)
	sse.SetKind(KindSSE)
	check := probe.OpenStream(KindHTTP1, clk.now())
	check.SetHead(get1, path1, host1, []byte("kube-probe/1.34"), nil)
	check.SetClass(ClassProbe)
	clk.advance(60)

	reg.SetPhase(Closing)
	if got := reg.Phase(); got != Serving {
		t.Errorf("a phase without a drain: got %s", got)
	}
	reg.BeginDrain("SIGTERM", clk.now(), clk.now()+30*second)
	reg.BeginDrain("again", clk.now()+1, clk.now()+20*second)
	if got := reg.Phase(); got != Lameduck {
		t.Errorf("phase: got %s, want %s", got, Lameduck)
	}
	reg.SetPhase(Draining)
	reg.SetPhase(Lameduck)

	clk.advance(3.2)
	late := openConn(s)
	if !late.Late() || idle.Late() {
		t.Errorf("late: got %v for a new connection, %v for an old one", late.Late(), idle.Late())
	}
	clk.advance(4.2)
	st := busy.OpenStream(KindHTTP1, clk.now())
	if !st.Late() || sse.Late() {
		t.Errorf("late: got %v for a new stream, %v for an old one", st.Late(), sse.Late())
	}
	clk.advance(1)
	lateProbe := probe.OpenStream(KindHTTP1, clk.now())
	lateProbe.SetClass(ClassProbe)
	lateProbe.End(completedByApp)
	idle.End(End{Fate: Drained, By: ByLastcall, How: HowFIN, At: clk.now()})

	v := reg.Drain()
	want := DrainView{
		Phase: Draining, Trigger: "SIGTERM", StartedAt: Time(start + 60*second), Deadline: Time(start + 80*second),
		Remaining: Remaining{Connections: 2, Streams: 2, ByKind: map[string]int{"sse": 1, "http1": 1}},
		Late:      LateView{Connections: 1, Streams: 1, LastConnection: new(Seconds(3.2)), LastStream: new(Seconds(7.4))},
		Fates:     DrainFates{Connections: map[string]uint64{"drained": 1}, Streams: map[string]uint64{"completed": 1}},
		Survivors: v.Survivors,
	}
	if diff := cmp.Diff(want, v); diff != "" {
		t.Errorf("view (-want +got):\n%s", diff)
	}
	if got, want := ids(v.Survivors), []string{"c2.1"}; !cmp.Equal(got, want) {
		t.Errorf("survivors: got %v, want %v", got, want)
	}

	st.End(End{Fate: Rejected, By: ByLastcall, How: HowProtocol})
	busy.EndStreams(End{Fate: Cut, By: ByLastcall, How: HowExit})
	busy.End(End{Fate: Cut, By: ByLastcall, How: HowExit})
	check.End(completedByApp)
	probe.End(completedByApp)
	select {
	case <-reg.Changed():
		t.Error("a token while a connection is left")
	default:
	}
	late.End(completedByApp)
	select {
	case <-reg.Changed():
	default:
		t.Error("no token with the last connection gone")
	}
	c := reg.Counts()
	wantLate := [numWhats][numAnswers]uint64{
		WhatConnection: {AnswerServed: 1}, WhatStream: {AnswerRejected: 1},
	}
	if diff := cmp.Diff(wantLate, c.Late); diff != "" {
		t.Errorf("late (-want +got):\n%s", diff)
	}
	if c.LastLate != [numWhats]int64{3_200_000_000, 7_400_000_000} {
		t.Errorf("last late arrivals: got %v", c.LastLate)
	}

	_, streams := get(t, reg, busy)
	first, second := streams[0], streams[1]
	if !first.Survivor || first.Late || *first.DrainOffset != 8.4 {
		t.Errorf("a survivor: got %s", first.AppendJSON(nil))
	}
	if second.Survivor || !second.Late || *second.LateOffset != 7.4 || *second.DrainOffset != 8.4 {
		t.Errorf("a late stream: got %s", second.AppendJSON(nil))
	}
}

func TestCancelDrain(t *testing.T) {
	reg, s, clk := newTest(t, Config{})
	reg.CancelDrain() // nothing to cancel
	old := openConn(s)
	stream := old.OpenStream(KindSSE, clk.now())
	reg.BeginDrain("hook", clk.now(), clk.now()+30*second)
	clk.advance(1)
	during := openConn(s)
	reg.CancelDrain()
	if reg.Phase() != Serving || during.Late() {
		t.Errorf("after the cancel: phase %s, late %v", reg.Phase(), during.Late())
	}
	c := reg.Counts()
	if c.DrainStartedAt != 0 || c.SurvivorsOpen != [numKinds]int64{} || c.LastLate != [numWhats]int64{-1, -1} {
		t.Errorf("after the cancel: got %+v", c)
	}
	recs, _, err := reg.Query(Query{What: WhatStream, State: StateSurvivors})
	if err != nil || len(recs) != 0 {
		t.Errorf("survivors after the cancel: %v, %v", ids(recs), err)
	}

	clk.advance(1)
	reg.BeginDrain("SIGTERM", clk.now(), clk.now()+30*second)
	if during.Late() {
		t.Error("what came in an earlier drain is late in the next one")
	}
	if got := reg.Counts().SurvivorsOpen[KindSSE]; got != 1 {
		t.Errorf("survivors: got %d, want 1", got)
	}
	clk.advance(2)
	stream.End(completedByApp)
	old.End(completedByApp)
	during.End(completedByApp)
	rec, _ := get(t, reg, during)
	if rec.Late || !rec.Survivor || *rec.DrainOffset != 2 {
		t.Errorf("got %s", rec.AppendJSON(nil))
	}
	if rep := reg.Report(); rep.Survivors.Connections.Total != 2 || rep.Survivors.Streams.Total != 1 {
		t.Errorf("report: got %+v", rep.Survivors)
	}
}

func TestFarewells(t *testing.T) {
	tests := []struct {
		name       string
		beganAfter bool
		end        End
		obeyed     bool
	}{
		{"left by itself", false, End{Fate: Drained, By: ByClient, How: HowFIN}, true},
		{"finished", false, completedByApp, true},
		{"closed by us, idle", false, End{Fate: Drained, By: ByLastcall, How: HowFIN}, true},
		{"began something more", true, End{Fate: Drained, By: ByClient, How: HowFIN}, false},
		{"cut", false, End{Fate: Cut, By: ByLastcall, How: HowExit}, false},
		{"ended", false, End{Fate: Ended, By: ByLastcall, How: HowFIN}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			reg, s, clk := newTest(t, Config{})
			c := openConn(s)
			c.OpenStream(KindHTTP1, clk.now()).End(completedByApp)
			c.Farewell(FarewellConnectionClose, false, clk.now())
			if c.Told() {
				t.Error("the app's farewell is taken for ours")
			}
			c.Farewell(FarewellConnectionClose, true, clk.now()+1)
			c.Farewell(FarewellFIN, true, clk.now()+2)
			if tt.beganAfter {
				c.OpenStream(KindHTTP1, clk.now()+3).End(completedByApp)
			}
			rec, _ := get(t, reg, c)
			if rec.Farewell.Obeyed != nil {
				t.Error("obeyed is known before the end")
			}
			c.End(tt.end)
			rec, _ = get(t, reg, c)
			want := FarewellRecord{
				SentAt: Time(start + 1), Kind: FarewellConnectionClose, Obeyed: &tt.obeyed, BeganAfter: uint32(bit(tt.beganAfter)),
			}
			if diff := cmp.Diff(&want, rec.Farewell); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			n := reg.Counts()
			wantN := [numFarewells][2]uint64{}
			wantN[FarewellConnectionClose][bit(tt.obeyed)] = 1
			if n.Farewells != wantN || n.OthersFarewells[FarewellConnectionClose] != 1 {
				t.Errorf("farewells: got %v and %v", n.Farewells, n.OthersFarewells)
			}
		})
	}
}

// A connection with one normal stream holds the drain, however many probes share it.
func TestClassOfConnection(t *testing.T) {
	reg, s, clk := newTest(t, Config{})
	c := openConn(s)
	stream := func(cl Class) {
		st := c.OpenStream(KindHTTP1, clk.now())
		st.SetHead(get1, path1, host1, ua1, nil)
		if cl != ClassNormal {
			st.SetClass(cl)
		}
		st.End(completedByApp)
	}
	want := func(step string, conns int) {
		t.Helper()
		if got := reg.Remaining().Connections; got != conns {
			t.Errorf("%s: %d connections hold a drain, want %d", step, got, conns)
		}
	}
	want("new", 1)
	stream(ClassProbe)
	want("a probe", 0)
	stream(ClassNormal)
	want("a request", 1)
	stream(ClassScrape)
	want("a scrape after it", 1)
	c.End(completedByApp)
	want("ended", 0)
}
