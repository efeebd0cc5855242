package proof

import (
	"fmt"
	"math"
)

// longest bounds the times of a document that is read, in seconds: some four months.
const longest = 1e7

// Check says whether a document that was read is one that can be shown: a file may be anybody's.
func (p *Proof) Check() error {
	switch p.Verdict {
	case Proven, NotProven, NoVerdict:
	default:
		return fmt.Errorf("verdict %q: want proven, not_proven or no_verdict", p.Verdict)
	}
	if p.Verdict != NoVerdict && len(p.Runs) == 0 {
		return fmt.Errorf("runs: %s without any", p.Verdict)
	}
	for i := range p.Runs {
		if err := p.Runs[i].check(); err != nil {
			return fmt.Errorf("runs[%d].%w", i, err)
		}
	}
	return nil
}

func (r *Run) check() error {
	times := map[string]float64{"end_s": r.End, "baseline.seconds": r.Baseline.Seconds}
	for i, ph := range r.Phases {
		times[fmt.Sprintf("phases[%d].from_s", i)], times[fmt.Sprintf("phases[%d].to_s", i)] = ph.From, ph.To
	}
	for i := range r.Loads {
		t := &r.Loads[i].Timeline
		times[fmt.Sprintf("loads[%d].timeline.from_s", i)], times[fmt.Sprintf("loads[%d].timeline.slice_s", i)] = t.From, t.Slice
	}
	for i := range r.Failures {
		times[fmt.Sprintf("failures[%d].at_s", i)] = r.Failures[i].At
	}
	for name, v := range times {
		if !(math.Abs(v) <= longest) {
			return fmt.Errorf("%s: %g is no time of a run", name, v)
		}
	}
	return nil
}
