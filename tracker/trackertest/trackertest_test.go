package trackertest

import (
	"testing"

	"github.com/lastcall-proxy/lastcall/tracker"
)

// failures is a test that others fail.
type failures struct {
	testing.TB
	n       int
	cleanup []func()
}

func (f *failures) Helper()               {}
func (f *failures) Errorf(string, ...any) { f.n++ }
func (f *failures) Error(...any)          { f.n++ }
func (f *failures) Cleanup(fn func())     { f.cleanup = append(f.cleanup, fn) }
func (f *failures) run() (failures int)   { f.cleanup[0](); return f.n }
func open(reg *tracker.Registry) *tracker.Conn {
	return reg.Shard(0).OpenConn(tracker.ConnFacts{Client: "10.0.0.1:1"})
}

func TestNew(t *testing.T) {
	end := tracker.End{Fate: tracker.Completed, By: tracker.ByClient, How: tracker.HowFIN}
	tests := []struct {
		name  string
		use   func(*tracker.Registry)
		fails bool
	}{
		{"nothing", func(*tracker.Registry) {}, false},
		{"all ended", func(reg *tracker.Registry) { open(reg).End(end) }, false},
		{"one left open", func(reg *tracker.Registry) { open(reg) }, true},
		{"streams left to the connection's end", func(reg *tracker.Registry) {
			c := open(reg)
			c.OpenStream(tracker.KindTCP, reg.Now())
			c.End(end)
		}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := &failures{TB: t}
			tt.use(New(f, tracker.Config{}))
			if got := f.run() > 0; got != tt.fails {
				t.Errorf("fails: got %v, want %v", got, tt.fails)
			}
		})
	}
}

func TestWant(t *testing.T) {
	reg := New(t, tracker.Config{})
	go func() {
		open(reg).End(tracker.End{Fate: tracker.Completed, By: tracker.ByClient})
	}()
	WaitFor(t, reg, Ended(tracker.WhatConnection, 1))
	WantFate(t, reg, tracker.WhatConnection, tracker.KindTCP, tracker.Completed, tracker.ByClient, 1)
	f := &failures{TB: t}
	WantFate(f, reg, tracker.WhatConnection, tracker.KindTCP, tracker.Cut, tracker.ByLastcall, 1)
	if f.n == 0 {
		t.Error("a wrong number of fates does not fail a test")
	}
}
