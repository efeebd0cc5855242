// Package trackertest has a registry for tests that fails the test when its books don't balance, and helpers to wait for
// and to want what a registry shows.
package trackertest

import (
	"testing"
	"time"

	"github.com/lastcall-proxy/lastcall/tracker"
)

// Patience is how long WaitFor waits.
const Patience = 10 * time.Second

// New makes a strict registry. When the test ends, its books must be in order and nothing may be open.
func New(t testing.TB, cfg tracker.Config) *tracker.Registry {
	t.Helper()
	cfg.Strict = true
	reg := tracker.New(cfg)
	t.Cleanup(func() {
		if err := reg.Check(); err != nil {
			t.Errorf("the registry's books: %v", err)
		}
		for _, what := range tracker.AllWhats() {
			recs, _, err := reg.Query(tracker.Query{What: what, Limit: 10})
			if err != nil {
				t.Errorf("open %ss: %v", what, err)
			}
			for i := range recs {
				t.Errorf("still open: %s", recs[i].AppendJSON(nil))
			}
		}
	})
	return reg
}

// WantFate fails the test unless exactly n records of that kind ended with the fate, by that party, in either direction.
func WantFate(t testing.TB, reg *tracker.Registry, what tracker.What, k tracker.Kind, f tracker.Fate, by tracker.Party, n uint64) {
	t.Helper()
	c := reg.Counts()
	var got uint64
	for _, d := range tracker.AllDirections() {
		got += c.Fates[what][d][k][f][by]
	}
	if got != n {
		t.Errorf("%s %ss that are %s by %s: got %d, want %d; all ended:", k, what, f, by, got, n)
		recs, _, err := reg.Query(tracker.Query{What: what, State: tracker.StateClosed, Limit: 20})
		if err != nil {
			t.Error(err)
		}
		for i := range recs {
			t.Errorf("  %s", recs[i].AppendJSON(nil))
		}
	}
}

// WaitFor waits until cond is true of the registry, and fails the test at once if that takes longer than Patience. It looks
// whenever the registry reports an event, and every few milliseconds for what makes none (bytes, states).
func WaitFor(t testing.TB, reg *tracker.Registry, cond func(reg *tracker.Registry) bool) {
	t.Helper()
	events, stop := reg.Subscribe(1, tracker.Interest{})
	defer stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.NewTimer(Patience)
	defer late.Stop()
	for !cond(reg) {
		select {
		case <-events:
		case <-tick.C:
		case <-late.C:
			c := reg.Counts()
			opened, open, ended := c.Sum(tracker.WhatConnection)
			t.Fatalf("waited %v for a condition; connections: %d opened, %d open, %d ended", Patience, opened, open, ended)
		}
	}
}

// Ended is a condition for WaitFor: n records of a kind have ended.
func Ended(what tracker.What, n uint64) func(*tracker.Registry) bool {
	return func(reg *tracker.Registry) bool {
		c := reg.Counts()
		_, _, ended := c.Sum(what)
		return ended >= n
	}
}
