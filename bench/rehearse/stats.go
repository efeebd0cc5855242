package rehearse

import (
	"slices"
	"time"
)

// Class is how a client comes back.
type Class string

// Classes. With one attempt only its delay is known; refuse-new shows more, since it makes clients try several times.
const (
	Naive   Class = "naive"   // at once, and again at once or at a fixed beat
	Backoff Class = "backoff" // after a while, longer each time or at random
	Never   Class = "never"   // not for as long as was watched
	Stayed  Class = "stayed"  // it never left: it sat the silence out, or had nothing new to ask for
	Unknown Class = "unknown" // it was not watched to the end
)

// atOnce is the delay below which nobody has waited: a handshake between machines, and a busy client's next turn.
const atOnce = 100 * time.Millisecond

// beatGaps is how many gaps it takes to call them a beat.
const beatGaps = 5

// notice is the first sign that a client knows: it leaves its old connection, or tries anew. -1: none was seen.
func (c *client) notice() time.Duration {
	at := c.left
	if len(c.attempts) > 0 && (at.IsZero() || c.attempts[0].opened.Before(at)) {
		at = c.attempts[0].opened
	}
	if at.IsZero() {
		return -1
	}
	return max(0, at.Sub(c.taken))
}

// patternTries is how many tries it takes to see more than a first delay.
const patternTries = 3

// class tells the habit from the gaps between attempts: the first is counted from when the client noticed.
func (c *client) class() Class {
	if len(c.attempts) == 0 {
		if c.left.IsZero() {
			return Stayed
		}
		return Never
	}
	noticed := c.taken
	if !c.left.IsZero() && c.left.Before(c.attempts[0].opened) {
		noticed = c.left
	}
	// A client decides when it dials: what its request then waits for, on a busy machine, is no habit. As long as that took, so
	// long it may have taken from the decision to the dial.
	began, busy := c.attempts[0].opened, time.Duration(0)
	if d := c.attempts[0].dialled; !d.IsZero() && d.Before(began) && d.After(noticed) {
		began, busy = d, min(began.Sub(d), atOnce)
	}
	gaps := []time.Duration{began.Sub(noticed)}
	for i := 1; i < len(c.attempts); i++ {
		gaps = append(gaps, c.attempts[i].opened.Sub(c.attempts[i-1].opened))
	}
	if len(gaps) < patternTries { // too few for any pattern: the longest wait decides
		if slices.Max(gaps) < atOnce+busy {
			return Naive
		}
		return Backoff
	}
	sorted := slices.Sorted(slices.Values(gaps[1:]))
	median := sorted[len(sorted)/2]
	if median < atOnce {
		return Naive
	}
	// A fixed beat keeps its gaps within a tenth of their median, give or take what a busy machine adds. Random waits can do
	// that too when they are few: five of them fall so close together once in some ten thousand times.
	if len(sorted) < beatGaps {
		return Backoff
	}
	for _, g := range sorted {
		if d := (g - median).Abs(); d > median/10+10*time.Millisecond {
			return Backoff
		}
	}
	return Naive
}

// bunchWindow is the width in which arrivals count as together.
const bunchWindow = 100 * time.Millisecond

// bunching is the most arrivals in any 100 ms, over the mean per 100 ms of the time watched. 1: perfectly even; the number
// of windows watched: all at once.
func bunching(at []time.Time, watched time.Duration) (peak int, ratio float64) {
	if len(at) == 0 || watched <= 0 {
		return 0, 0
	}
	at = slices.Clone(at)
	slices.SortFunc(at, time.Time.Compare)
	from := 0
	for to := range at {
		for at[to].Sub(at[from]) >= bunchWindow {
			from++
		}
		peak = max(peak, to-from+1)
	}
	mean := float64(len(at)) * float64(bunchWindow) / float64(max(watched, bunchWindow))
	return peak, float64(peak) / mean
}

// Quantiles are of what was seen, in milliseconds.
type Quantiles struct {
	N   int     `json:"n"`
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

func quantiles(d []time.Duration) Quantiles {
	if len(d) == 0 {
		return Quantiles{}
	}
	d = slices.Sorted(slices.Values(d))
	at := func(q float64) float64 { return ms(d[min(len(d)-1, int(q*float64(len(d))))]) }
	return Quantiles{N: len(d), P50: at(0.5), P90: at(0.9), P99: at(0.99), Max: ms(d[len(d)-1])}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
