package proof

import (
	"fmt"
	"io"
	"strings"

	"github.com/lastcall-proxy/lastcall/bench/show"
)

// JUnit writes a test case per threshold; without a verdict, one case with an error.
func (p *Proof) JUnit(w io.Writer) error {
	var took float64
	var detail strings.Builder
	for i := range p.Runs {
		took += p.Runs[i].End + p.Runs[i].Baseline.Seconds
		rows, more := p.Runs[i].rows()
		for _, g := range rows {
			fmt.Fprintf(&detail, "run %d: %d x %s %s in %s, by %s: %s %s %s\n", i+1, g.N, g.Kind, g.Outcome, g.Phase, g.Attributed, g.Wire, g.FateID, g.Fate)
		}
		if more > 0 {
			fmt.Fprintf(&detail, "run %d: and %d more sorts\n", i+1, more)
		}
	}
	var cases []show.Case
	if p.Verdict == NoVerdict {
		cases = append(cases, show.Case{Name: "verdict", Error: &show.Message{Message: p.Reason, Type: "no_verdict"}})
	}
	for _, t := range p.Thresholds {
		c := show.Case{Name: t.Name}
		if !t.OK {
			c.Failure = &show.Message{Message: fmt.Sprintf("%s, at most %s", t.Found(), t.AtMost()), Type: "threshold", Text: detail.String()}
		}
		cases = append(cases, c)
	}
	return show.JUnit(w, "lastcall.prove", took, cases)
}
