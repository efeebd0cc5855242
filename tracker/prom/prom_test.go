package prom_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lastcall-proxy/lastcall/tracker"
	"github.com/lastcall-proxy/lastcall/tracker/prom"
	"github.com/lastcall-proxy/lastcall/tracker/trackertest"
)

func TestEverythingAtZeroAndBooksBalance(t *testing.T) {
	reg := trackertest.New(t, tracker.Config{Shards: 1})
	p := prometheus.NewPedanticRegistry()
	if err := p.Register(prom.New(prom.Config{Registry: reg})); err != nil {
		t.Fatal(err)
	}
	problems, err := testutil.GatherAndLint(p)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range problems {
		t.Errorf("lint: %s: %s", l.Metric, l.Text)
	}
	before := series(t, p)
	if before > 800 {
		t.Errorf("series: got %d, want at most 800", before)
	}
	c := reg.Shard(0).OpenConn(tracker.ConnFacts{Client: "c", App: "a", OpenedAt: reg.Now()})
	s := c.OpenStream(tracker.KindTCP, reg.Now())
	e := tracker.End{Fate: tracker.Completed, By: tracker.ByClient, How: tracker.HowFIN}
	s.End(e)
	c.End(e)
	if after := series(t, p); after != before {
		t.Errorf("series after traffic: got %d, want the %d of the start", after, before)
	}
	for _, name := range []string{"connection_fates_total", "connections_opened_total", "stream_fates_total", "streams_opened_total"} {
		if got := sum(t, p, "lastcall_"+name); got != 1 {
			t.Errorf("%s: got %v, want 1", name, got)
		}
	}
}

func series(t *testing.T, g prometheus.Gatherer) (n int) {
	t.Helper()
	fams, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fams {
		for _, m := range f.GetMetric() {
			n++
			if h := m.GetHistogram(); h != nil {
				n += len(h.GetBucket()) + 2
			}
		}
	}
	return n
}

func sum(t *testing.T, g prometheus.Gatherer, name string) (v float64) {
	t.Helper()
	fams, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fams {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				v += m.GetCounter().GetValue()
			}
		}
	}
	return v
}
