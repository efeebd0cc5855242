package main

import (
	"runtime"
	"testing"
	"time"
)

func TestBusyLeavesOutIdleAndWaiting(t *testing.T) {
	got, err := busy("cpu  1 2 4 1000 2000 8 16 32 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n")
	if err != nil || got != 630*time.Millisecond {
		t.Errorf("got %v, %v, want 63 ticks", got, err)
	}
	for _, bad := range []string{"", "cpu 1 2", "intr 1 2 3 4 5 6 7 8 9", "cpu 1 2 x 4 5 6 7 8 9"} {
		if _, err := busy(bad); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

func TestElsewhereIsWhatOthersUsed(t *testing.T) {
	var before account
	n := time.Duration(runtime.NumCPU())
	after := account{at: before.at.Add(time.Second), busy: n * 800 * time.Millisecond, ours: n * 600 * time.Millisecond}
	if got := after.elsewhere(before); got < 19.9 || got > 20.1 {
		t.Errorf("got %.2f %%, want 20", got)
	}
}
