package rehearse

import (
	"fmt"
	"math"
	"slices"
)

// longest bounds the times of a document that is read, in seconds: some four months.
const longest = 1e7

// Check says whether a document that was read is one that can be shown: a file may be anybody's.
func (r *Result) Check() error {
	if !slices.Contains([]string{"met", "not_met", "none"}, r.Verdict) {
		return fmt.Errorf("verdict %q: want met, not_met or none", r.Verdict)
	}
	if !(math.Abs(r.Watched) <= longest) {
		return fmt.Errorf("watched_s: %g is no time of a rehearsal", r.Watched)
	}
	for i := range r.Clients {
		c := &r.Clients[i]
		for _, v := range []*float64{&c.TakenAt, c.Notice, c.First, c.Reconnect} {
			if v != nil && !(math.Abs(*v) <= longest*1e3) {
				return fmt.Errorf("clients[%d]: %g is no time of a rehearsal", i, *v)
			}
		}
	}
	return nil
}
