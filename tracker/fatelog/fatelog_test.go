package fatelog_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/zap/zapcore"

	"github.com/lastcall-proxy/lastcall/tracker"
	"github.com/lastcall-proxy/lastcall/tracker/fatelog"
	"github.com/lastcall-proxy/lastcall/tracker/trackertest"
)

// gate is a writer that waits to be opened.
type gate struct {
	open chan struct{}
	got  bytes.Buffer
}

func (g *gate) Write(p []byte) (int, error) { <-g.open; return g.got.Write(p) }

func TestLinesAndLoss(t *testing.T) {
	g := &gate{open: make(chan struct{})}
	log := fatelog.New(fatelog.Config{Out: zapcore.AddSync(g), Queue: 2})
	reg := trackertest.New(t, tracker.Config{Shards: 1, OnEnd: log.OnEnd})
	end := func() {
		c := reg.Shard(0).OpenConn(tracker.ConnFacts{Client: "192.0.2.1:5", App: "a", OpenedAt: reg.Now()})
		c.End(tracker.End{Fate: tracker.Completed, By: tracker.ByClient, How: tracker.HowFIN})
	}
	for range 10 { // nobody reads: this must not block
		end()
	}
	lost := log.Dropped()
	if lost < 7 || lost > 8 {
		t.Errorf("dropped: got %d, want 7 or 8 of 10 with a queue of 2", lost)
	}
	close(g.open)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := log.Close(ctx); err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSpace(g.got.Bytes()), []byte("\n"))
	var told uint64
	for _, l := range lines {
		var v struct {
			Logger, Msg, Fate, By, How string
			Dropped                    uint64 `json:"dropped_before"`
		}
		if err := json.Unmarshal(l, &v); err != nil {
			t.Fatalf("line %q: %v", l, err)
		}
		if v.Logger != "fate" || v.Msg != "connection ended" || v.Fate != "completed" || v.By != "client" || v.How != "fin" {
			t.Errorf("line: got %s", l)
		}
		told += v.Dropped
	}
	if uint64(len(lines))+lost != 10 || told > lost {
		t.Errorf("lines: got %d and %d lost (%d told), want 10 together", len(lines), lost, told)
	}
}

func TestFiles(t *testing.T) {
	reg := trackertest.New(t, tracker.Config{Shards: 1})
	dir := t.TempDir()
	path := filepath.Join(dir, "report.json")
	if err := fatelog.WriteReport(path, reg.Report()); err != nil {
		t.Fatal(err)
	}
	short := filepath.Join(dir, "termination-log")
	if err := fatelog.WriteTermination(short, reg.Report()); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, short} {
		b, err := os.ReadFile(p)
		if err != nil || !json.Valid(b) {
			t.Errorf("%s: got %q, %v; want JSON", filepath.Base(p), b, err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".lastcall-*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	if err := fatelog.WriteReport(filepath.Join(dir, "none", "r"), reg.Report()); err == nil {
		t.Error("a report into a missing folder: got no error")
	}
}

func TestConsole(t *testing.T) {
	var out bytes.Buffer
	log := fatelog.New(fatelog.Config{Out: zapcore.AddSync(&out), Console: true})
	reg := trackertest.New(t, tracker.Config{Shards: 1, OnEnd: log.OnEnd})
	c := reg.Shard(0).OpenConn(tracker.ConnFacts{Client: "192.0.2.1:5", App: "a"})
	c.End(tracker.End{Fate: tracker.Completed, By: tracker.ByClient, How: tracker.HowFIN})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := log.Close(ctx); err != nil {
		t.Fatal(err)
	}
	parts := bytes.Split(out.Bytes(), []byte("\t"))
	if len(parts) != 5 || string(parts[1]) != "info" || string(parts[2]) != "fate" || string(parts[3]) != "connection ended" || !json.Valid(parts[4]) {
		t.Errorf("line: got %q, want time, level, logger, message and the record, each behind a tab", out.String())
	}
}
