package tracker

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"
)

// Advice is what a drain teaches about its settings.
type Advice struct {
	// GracePeriod is how long a drain must run to let that share of the survivors come to their own ends, were they all to
	// begin at its trigger: a quantile of their lifetimes.
	GracePeriod GraceAdvice `json:"grace_period"`
	// Lameduck would have covered the last late arrival.
	Lameduck Estimate `json:"lameduck"`
	Notes    []string `json:"notes"`
}

// GraceAdvice is an estimate per share of the survivors.
type GraceAdvice struct {
	P50 Estimate `json:"p50"`
	P90 Estimate `json:"p90"`
	P99 Estimate `json:"p99"`
}

// Estimate is a duration, a lower bound of one, or unknown. Its JSON form is {"seconds":3.1,"at_least":false} or
// "unknown".
type Estimate struct {
	Known   bool
	AtLeast bool
	Seconds Seconds
}

type estimateJSON struct {
	Seconds Seconds `json:"seconds"`
	AtLeast bool    `json:"at_least"`
}

// MarshalJSON writes the estimate.
func (e Estimate) MarshalJSON() ([]byte, error) {
	if !e.Known {
		return []byte(`"unknown"`), nil
	}
	return json.Marshal(estimateJSON{Seconds: e.Seconds, AtLeast: e.AtLeast})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (e *Estimate) UnmarshalJSON(b []byte) error {
	if string(b) == `"unknown"` {
		*e = Estimate{}
		return nil
	}
	var v estimateJSON
	if err := json.Unmarshal(b, &v); err != nil {
		return err
	}
	*e = Estimate{Known: true, AtLeast: v.AtLeast, Seconds: v.Seconds}
	return nil
}

func (e Estimate) String() string {
	if !e.Known {
		return "unknown"
	}
	d := e.Seconds.Duration().Round(100 * time.Millisecond).String()
	if e.AtLeast {
		return "more than " + d
	}
	return d
}

// lifetime is how long a stream lived. One that we ended, or that is still open, would have lived longer: it is cut off.
type lifetime struct {
	ns     int64
	cutOff bool
}

// ownEnd says whether a fate is an end that would have come without us.
func ownEnd(f Fate) bool {
	switch f {
	case Completed, Drained, Aborted, Unreachable:
		return true
	case FateOpen, Ended, Cut, Rejected, TimedOut, Kicked, Failed, Lost, numFates:
		return false
	}
	return false
}

// quantiles estimates quantiles of the lifetimes by Kaplan and Meier's method, which uses what is known of those that were
// cut off: that they lived at least that long. ("Nonparametric estimation from incomplete observations", 1958.) Where too
// many were cut off, the longest lifetime seen is a lower bound.
func quantiles(lives []lifetime, shares ...float64) []Estimate {
	out := make([]Estimate, len(shares))
	if len(lives) == 0 {
		return out
	}
	lives = slices.Clone(lives)
	slices.SortFunc(lives, func(a, b lifetime) int {
		// At the same time ends come first: who was cut off then was still at risk.
		return cmp.Or(cmp.Compare(a.ns, b.ns), cmp.Compare(bit(a.cutOff), bit(b.cutOff)))
	})
	longest := secondsOf(lives[len(lives)-1].ns)
	for i := range out {
		out[i] = Estimate{Known: true, AtLeast: true, Seconds: longest}
	}
	alive := 1.0
	for i, l := range lives {
		if l.cutOff {
			continue
		}
		alive *= 1 - 1/float64(len(lives)-i)
		for j, share := range shares {
			if out[j].AtLeast && alive <= 1-share+1e-9 {
				out[j] = Estimate{Known: true, Seconds: secondsOf(l.ns)}
			}
		}
	}
	return out
}

// untilTheEnd is how close to the report, of a drain several times as long, a late arrival tells that they had not ceased: no lameduck covers clients that are
// not sent elsewhere.
const untilTheEnd = int64(time.Second)

func advise(lives []lifetime, lastLate [numWhats]int64, took int64) Advice {
	q := quantiles(lives, 0.5, 0.9, 0.99)
	a := Advice{GracePeriod: GraceAdvice{P50: q[0], P90: q[1], P99: q[2]}}
	switch {
	case len(lives) == 0:
		a.Notes = append(a.Notes, "grace period: unknown, no stream was in flight when the drain began")
	case q[0].AtLeast && q[2].AtLeast && !slices.ContainsFunc(lives, func(l lifetime) bool { return !l.cutOff }):
		a.Notes = append(a.Notes, fmt.Sprintf("grace period: unknown, none of %d survivors came to an end by itself; the oldest lived %s", len(lives), q[0].Seconds.Duration().Round(100*time.Millisecond)))
	default:
		a.Notes = append(a.Notes, fmt.Sprintf("grace period that lets survivors finish by themselves: half of them %s, 90%% %s, 99%% %s (of %d)",
			q[0], q[1], q[2], len(lives)))
	}
	if last := max(lastLate[WhatConnection], lastLate[WhatStream]); last >= 0 {
		a.Lameduck = Estimate{Known: true, Seconds: Seconds(math.Ceil(float64(last)/1e8) / 10)}
		note := fmt.Sprintf("lameduck that covers the last late arrival: %s", a.Lameduck)
		if took-last < untilTheEnd && took > 3*untilTheEnd {
			note += "; they came until the end, so clients are not sent elsewhere yet (readiness, endpoints)"
		}
		a.Notes = append(a.Notes, note)
	} else {
		a.Notes = append(a.Notes, "lameduck: unknown, nothing arrived late")
	}
	return a
}
