package tracker

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReportAndShort(t *testing.T) {
	const survivors = 10_000
	reg, s, clk := newTest(t, Config{Shards: 2})
	var conns []*Conn
	for i := range survivors {
		c := openConn(reg.Shard(i % 2))
		st := c.OpenStream(KindWebSocket, clk.now())
		st.SetHead(get1, []byte("/rooms/\xff\"<"+strings.Repeat("r", i%300)), host1, ua1, nil)
		conns = append(conns, c)
		clk.advance(0.001)
	}
	_ = s
	reg.BeginDrain(strings.Repeat("long trigger ", 100), clk.now(), clk.now()+30*second)
	clk.advance(25)
	for i, c := range conns {
		e := []End{
			{Fate: Ended, By: ByLastcall, How: HowProtocol},
			{Fate: Cut, By: ByLastcall, How: HowExit},
			{Fate: Completed, By: ByClient, How: HowProtocol},
		}[i%3]
		if i >= survivors-3 {
			continue // still open
		}
		c.EndStreams(e)
		c.End(e)
	}
	rep := reg.Report()
	if rep.Problem != "" || rep.Survivors.Streams.Total != survivors || rep.Survivors.Streams.Open != 3 || len(rep.Survivors.Records) != survivors {
		t.Errorf("got problem %q, survivors %+v, %d records", rep.Problem, rep.Survivors.Streams, len(rep.Survivors.Records))
	}
	if got, want := rep.Connections.Opened, rep.Connections.Open+rep.Survivors.Connections.Total-3; got != want {
		t.Errorf("opened %d, open and ended %d", got, want)
	}
	for _, limit := range []int{0, 1, 2, 100, 200, 300, 700, 1000, 1500, 2000, 3000, MaxShort} {
		b := rep.Short(limit)
		if len(b) > limit {
			t.Errorf("%d bytes of at most %d", len(b), limit)
		}
		if limit < 2 {
			continue
		}
		var v struct {
			Survivors struct{ Streams SurvivorFates }
			Records   []shortSurvivor
			LeftOut   struct {
				Survivors uint64
				Sections  []string
			} `json:"left_out"`
		}
		if err := json.Unmarshal(b, &v); err != nil {
			t.Errorf("at most %d bytes: %s: %v", limit, b, err)
		}
		if limit >= 700 && uint64(len(v.Records))+v.LeftOut.Survivors != survivors {
			t.Errorf("at most %d bytes: %d records, %d left out, want %d in all", limit, len(v.Records), v.LeftOut.Survivors, survivors)
		}
		if limit == MaxShort {
			t.Logf("%s", b)
			if len(v.Records) < 10 || v.Records[0].Fate != FateOpen || v.Records[3].Fate != Cut || len(v.LeftOut.Sections) > 0 {
				t.Errorf("got %+v", v)
			}
		}
	}
	for _, c := range conns[survivors-3:] {
		c.EndStreams(End{Fate: Lost, By: ByUnknown})
		c.End(End{Fate: Lost, By: ByUnknown})
	}
}

// More survivors than a report holds: it says how many it left out.
func TestReportOmits(t *testing.T) {
	reg, s, clk := newTest(t, Config{})
	c := openConn(s)
	const n = maxSurvivorEnds + 50
	for range n {
		c.OpenStream(KindGRPC, clk.now())
	}
	reg.BeginDrain("test", clk.now(), clk.now())
	e := End{Fate: Cut, By: ByLastcall, How: HowExit}
	c.EndStreams(e)
	c.End(e)
	rep := reg.Report()
	if rep.Survivors.Streams.Total != n || len(rep.Survivors.Records) != maxReportRecords || rep.Survivors.Omitted != 50 {
		t.Errorf("got %d, %d records, %d omitted", rep.Survivors.Streams.Total, len(rep.Survivors.Records), rep.Survivors.Omitted)
	}
}

func TestReportWithoutDrain(t *testing.T) {
	reg, s, _ := newTest(t, Config{})
	c := openConn(s)
	rep := reg.Report()
	if rep.Connections.Open != 1 || rep.Took != 0 || rep.Advice.Lameduck.Known {
		t.Errorf("got %+v", rep)
	}
	if b := rep.Short(MaxShort); !json.Valid(b) || !strings.Contains(string(b), `"lameduck":"unknown"`) {
		t.Errorf("short: %s", b)
	}
	c.End(completedByApp)
}

func TestQuantiles(t *testing.T) {
	secs := func(n ...float64) (out []lifetime) {
		for _, s := range n {
			cut := s < 0
			if cut {
				s = -s
			}
			out = append(out, lifetime{ns: int64(s * 1e9), cutOff: cut})
		}
		return out
	}
	tests := []struct {
		name  string
		lives []lifetime // cut off: negative
		want  string
	}{
		{"none", nil, "unknown unknown unknown"},
		{"one", secs(3), "3s 3s 3s"},
		{"all at their own ends", secs(4, 1, 3, 2, 10, 6, 7, 8, 9, 5), "5s 9s 10s"},
		{"all cut off", secs(-3600, -7200), "more than 2h0m0s more than 2h0m0s more than 2h0m0s"},
		{"half cut off at the end", secs(1, 1, 1, -30, -30, -30), "1s more than 30s more than 30s"},
		// Those cut off early say little: the others are taken to stand for them.
		{"some cut off early", secs(-1, -1, -1, -1, 20, 20), "20s 20s 20s"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			q := quantiles(tt.lives, 0.5, 0.9, 0.99)
			if got := fmt.Sprint(q[0], " ", q[1], " ", q[2]); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestAdviceLameduck(t *testing.T) {
	reg, s, clk := newTest(t, Config{})
	reg.BeginDrain("test", clk.now(), clk.now())
	clk.advance(7.31)
	c := openConn(s)
	c.Answer(AnswerRejected)
	c.Answer(AnswerServed) // the first one stands
	if got := reg.Counts().Late[WhatConnection]; got != [numAnswers]uint64{AnswerRejected: 1} {
		t.Errorf("late: got %v", got)
	}
	if got := reg.Report().Advice.Lameduck; got != (Estimate{Known: true, Seconds: 7.4}) {
		t.Errorf("lameduck: got %+v, want 7.4s", got)
	}
	if notes := strings.Join(reg.Report().Advice.Notes, "\n"); !strings.Contains(notes, "they came until the end") {
		t.Errorf("notes: %s", notes)
	}
	clk.advance(5)
	if notes := strings.Join(reg.Report().Advice.Notes, "\n"); strings.Contains(notes, "they came until the end") || !strings.Contains(notes, "7.4s") {
		t.Errorf("notes: %s", notes)
	}
	c.End(End{Fate: Rejected, By: ByLastcall})
}

// The report and the view read back: the command line shows what the API gave.
func TestReportReadsBack(t *testing.T) {
	reg, s, clk := newTest(t, Config{})
	c := openConn(s)
	c.OpenStream(KindSSE, clk.now())
	reg.BeginDrain("test", clk.now(), clk.now()+30*second)
	clk.advance(1)
	late := openConn(s)
	want := reg.Report()
	view := reg.Drain()
	var got Report
	var gotView DrainView
	for _, v := range []struct{ from, to any }{{want, &got}, {view, &gotView}} {
		b, err := json.Marshal(v.from)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(b, v.to); err != nil {
			t.Fatal(err)
		}
	}
	// The clock of the test has whole microseconds.
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(view, gotView); diff != "" {
		t.Errorf("view (-want +got):\n%s", diff)
	}
	golden(t, "drain-view.json", must(json.MarshalIndent(view, "", " ")))
	golden(t, "report.json", must(json.MarshalIndent(want, "", " ")))
	late.End(completedByApp)
	c.EndStreams(completedByApp)
	c.End(completedByApp)
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}
