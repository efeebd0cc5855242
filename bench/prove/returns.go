package prove

import (
	"math"
	"slices"
)

// p99 is how long all but one in a hundred of the clients needed to be back, in seconds. Those that were still on their way
// when the run ended count as needing longer than anybody: then it is a lower bound.
type p99 struct {
	seconds float64
	atLeast bool
	away, n int
}

func p99Of(returns, away []float64) p99 {
	n := len(returns) + len(away)
	if n == 0 {
		return p99{}
	}
	returns = slices.Sorted(slices.Values(returns))
	if i := min(n-1, n*99/100); i < len(returns) {
		return p99{seconds: math.Round(returns[i]*1e3) / 1e6, away: len(away), n: n}
	}
	return p99{seconds: slices.Max(append(returns, away...)) / 1e3, atLeast: true, away: len(away), n: n}
}

// worse is the one that tells of longer waits.
func (a p99) worse(b p99) p99 {
	if b.atLeast && !a.atLeast || b.atLeast == a.atLeast && b.seconds > a.seconds {
		return b
	}
	return a
}
