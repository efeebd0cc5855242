package tracker_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lastcall-proxy/lastcall/tracker"
)

func TestJournalFindsWhatWasLost(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	first, left, err := tracker.OpenJournal(path, 2)
	if err != nil || left.Sum(tracker.WhatConnection) != 0 {
		t.Fatalf("new journal: got %d left, %v", left.Sum(tracker.WhatConnection), err)
	}
	reg := tracker.New(tracker.Config{Shards: 2, Journal: first})
	for i := range 4 {
		c := reg.Shard(i % 2).OpenConn(tracker.ConnFacts{OpenedAt: reg.Now()})
		s := c.OpenStream(tracker.KindHTTP1, reg.Now())
		switch i {
		case 0:
			e := tracker.End{Fate: tracker.Completed, By: tracker.ByClient, How: tracker.HowFIN}
			s.End(e)
			c.End(e)
		case 1:
			s.SetKind(tracker.KindWebSocket)
			c.SetKind(tracker.KindWebSocket)
		}
	}
	// The process dies here: nothing is closed. Another one, with other shards, opens the file.
	second, left, err := tracker.OpenJournal(path, 1)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]uint64{"http1": 2, "websocket": 1}, left.ByKind(tracker.WhatStream)); diff != "" {
		t.Errorf("streams left (-want +got):\n%s", diff)
	}
	reg = tracker.New(tracker.Config{Shards: 1, Journal: second, Left: left})
	n := reg.Counts()
	if got := n.FateSum(tracker.WhatConnection, tracker.Lost); got != 3 {
		t.Errorf("lost connections: got %d, want 3", got)
	}
	if err := reg.Check(); err != nil {
		t.Error(err)
	}
	if err := n.Balanced(); err != nil {
		t.Error(err)
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	third, left, err := tracker.OpenJournal(path, 3)
	if err != nil || left.Sum(tracker.WhatConnection)+left.Sum(tracker.WhatStream) != 0 {
		t.Errorf("after a clean end: got %v, %v; want nothing left", left, err)
	}
	if err := third.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestJournalLeavesOtherFilesAlone(t *testing.T) {
	for name, text := range map[string]string{"text": "something else entirely, and longer than a header is: 0123456789", "short": "x", "cut": "lastcall\x01\x00\x00\x00\x02\x00\x00\x00" + string(make([]byte, 60))} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "f")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, _, err := tracker.OpenJournal(path, 1); err == nil {
				t.Error("got no error")
			}
			if got, _ := os.ReadFile(path); string(got) != text {
				t.Errorf("the file was changed to %q", got)
			}
		})
	}
}
