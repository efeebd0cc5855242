package tracker

import (
	"testing"
)

// clock is a registry's time that the test moves: nanoseconds since the epoch.
type clock struct{ ns int64 }

// start is 2026-12-01T08:00:00.123456Z.
const start = 1796112000_123456_000

const second = int64(1e9)

func (c *clock) now() int64           { return c.ns }
func (c *clock) advance(secs float64) { c.ns += int64(secs * 1e9) }

// newTest is a strict registry of one shard in a clock's time, whose books are proven when the test ends.
func newTest(t testing.TB, cfg Config) (*Registry, *Shard, *clock) {
	t.Helper()
	clk := &clock{ns: start}
	cfg.Now, cfg.Strict = clk.now, true
	reg := New(cfg)
	t.Cleanup(func() {
		if err := reg.Check(); err != nil {
			t.Errorf("the books: %v", err)
		}
	})
	return reg, reg.Shard(0), clk
}

func openConn(s *Shard) *Conn {
	c := s.OpenConn(ConnFacts{Listener: "web", App: "127.0.0.1:8080", Client: "10.1.2.3:53122"})
	c.SetStage(StageIdle)
	return c
}

func get(t testing.TB, reg *Registry, c *Conn) (Record, []Record) {
	t.Helper()
	rec, streams, ok := reg.Get(c.ID())
	if !ok {
		t.Fatalf("c%d is unknown", c.ID())
	}
	return rec, streams
}

func ids(recs []Record) []string {
	out := make([]string, len(recs))
	for i := range recs {
		out[i] = recs[i].ID
	}
	return out
}

var completedByApp = End{Fate: Completed, By: ByApp, How: HowProtocol}
