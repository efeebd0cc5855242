// Package drain decides when a drain moves on and who is asked to leave when. It knows the registry, not the protocols:
// what it wants done it asks of an Actor.
package drain

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lastcall-proxy/lastcall/tracker"
)

// Limits are the times of a drain, all counted from its trigger.
type Limits struct {
	Lameduck time.Duration // until then everything new is served
	Closing  time.Duration // from then on what is open is ended politely
	Deadline time.Duration // then the rest is cut
}

// phaseAt is the phase that a drain is in after some time; empty says that nothing holds it any more.
func phaseAt(l Limits, since time.Duration, empty bool) tracker.Phase {
	switch {
	case since >= l.Deadline:
		return tracker.Cutting
	case since < l.Lameduck:
		return tracker.Lameduck
	case empty:
		return tracker.Done
	case since >= l.Closing:
		return tracker.Closing
	default:
		return tracker.Draining
	}
}

// pace spreads n departures over a window, each somewhere in its own share of it: clients that all left at one moment would
// all come back at one moment.
func pace(n int, window time.Duration, r *rand.Rand) []time.Duration {
	at := make([]time.Duration, n)
	for i := range at {
		at[i] = time.Duration((float64(i) + r.Float64()) / float64(n) * float64(window))
	}
	slices.Sort(at)
	return at
}
