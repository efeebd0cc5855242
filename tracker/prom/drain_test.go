package prom_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lastcall-proxy/lastcall/tracker"
	"github.com/lastcall-proxy/lastcall/tracker/prom"
	"github.com/lastcall-proxy/lastcall/tracker/trackertest"
)

// TestLateMetricsAreDescribed: a pedantic registry takes the metrics that only a drain or a change of kind brings.
func TestLateMetricsAreDescribed(t *testing.T) {
	reg := trackertest.New(t, tracker.Config{Shards: 1})
	p := prometheus.NewPedanticRegistry()
	if err := p.Register(prom.New(prom.Config{Registry: reg})); err != nil {
		t.Fatal(err)
	}
	c := reg.Shard(0).OpenConn(tracker.ConnFacts{Client: "c", App: "a"})
	c.SetKind(tracker.KindHTTP1)
	reg.BeginDrain("test", reg.Now(), reg.Now()+1e9)
	late := reg.Shard(0).OpenConn(tracker.ConnFacts{Client: "c", App: "a"})
	if _, err := p.Gather(); err != nil {
		t.Error(err)
	}
	e := tracker.End{Fate: tracker.Completed, By: tracker.ByClient, How: tracker.HowFIN}
	c.End(e)
	late.End(e)
}
