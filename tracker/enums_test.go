package tracker

import (
	"encoding"
	"testing"
)

// enum is what every closed enum of this package can do.
type enum interface {
	encoding.TextMarshaler
	String() string
}

func checkNames[T ~uint8, P interface {
	*T
	encoding.TextUnmarshaler
}](t *testing.T, name string, num T, list []T, text func(T) enum) {
	t.Helper()
	seen := map[string]bool{}
	for v := T(0); v < num; v++ {
		s := text(v).String()
		if seen[s] {
			t.Errorf("%s %d: name %q is taken", name, v, s)
		}
		seen[s] = true
		if s == "" && v != 0 {
			t.Errorf("%s %d has no name", name, v)
		}
		b, err := text(v).MarshalText()
		if err != nil || string(b) != s {
			t.Errorf("%s %d: text %q, %v, want %q", name, v, b, err, s)
		}
		var back T
		if err := P(&back).UnmarshalText(b); err != nil || back != v {
			t.Errorf("%s: %q reads as %d, %v, want %d", name, s, back, err, v)
		}
	}
	if got := text(num).String(); got != "invalid" {
		t.Errorf("%s %d: got %q, want %q", name, num, got, "invalid")
	}
	var back T
	if err := P(&back).UnmarshalText([]byte("no such name")); err == nil {
		t.Errorf("%s: an unknown name reads as %d", name, back)
	}
	for i, v := range list {
		if want := num - T(len(list)) + T(i); v != want {
			t.Errorf("%s: the list has %d at %d, want %d", name, v, i, want)
		}
	}
	if len(list) < int(num)-1 {
		t.Errorf("%s: the list has %d of %d", name, len(list), num)
	}
}

func TestEnumNames(t *testing.T) {
	checkNames(t, "Direction", numDirections, AllDirections(), func(v Direction) enum { return v })
	checkNames(t, "Kind", numKinds, AllKinds(), func(v Kind) enum { return v })
	checkNames(t, "Fate", numFates, AllFates(), func(v Fate) enum { return v })
	checkNames(t, "Party", numParties, AllParties(), func(v Party) enum { return v })
	checkNames(t, "How", numHows, AllHows(), func(v How) enum { return v })
	checkNames(t, "Stage", numStages, AllStages(), func(v Stage) enum { return v })
	checkNames(t, "Class", numClasses, AllClasses(), func(v Class) enum { return v })
	checkNames(t, "WaitingOn", numWaitings, AllWaitings(), func(v WaitingOn) enum { return v })
	checkNames(t, "Phase", numPhases, AllPhases(), func(v Phase) enum { return v })
	checkNames(t, "What", numWhats, AllWhats(), func(v What) enum { return v })
	checkNames(t, "Answer", numAnswers, AllAnswers(), func(v Answer) enum { return v })
	checkNames(t, "FarewellKind", numFarewells, AllFarewells(), func(v FarewellKind) enum { return v })
	checkNames(t, "EventType", numEventTypes, all[EventType](int(numEventTypes)), func(v EventType) enum { return v })
}

func TestCanOccur(t *testing.T) {
	for _, w := range AllWhats() {
		for _, k := range AllKinds() {
			n := 0
			fates := map[Fate]bool{}
			for _, f := range append(AllFates(), FateOpen) {
				for _, p := range AllParties() {
					if CanOccur(w, k, f, p) {
						n++
						fates[f] = true
					}
				}
			}
			if n > 16 {
				t.Errorf("%s %s: %d pairs, want at most 16", w, k, n)
			}
			if len(fates) != len(AllFates()) || fates[FateOpen] {
				t.Errorf("%s %s: %d fates can occur, want all %d", w, k, len(fates), len(AllFates()))
			}
		}
	}
	if CanOccur(numWhats, KindTCP, Completed, ByApp) || CanOccur(WhatStream, numKinds, Completed, ByApp) {
		t.Error("an end can occur to what does not exist")
	}
}
