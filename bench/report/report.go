// Package report turns a benchmark's rounds into medians, ratios and verdicts, as a table and as JSON.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
)

// Cell is one figure of one peer in one scenario, once per round.
type Cell struct {
	Scenario, Peer, Unit string
	Rounds               []float64
}

// Median of the rounds.
func (c *Cell) Median() float64 {
	s := slices.Clone(c.Rounds)
	slices.Sort(s)
	if len(s) == 0 {
		return 0
	}
	if len(s)%2 == 0 {
		return (s[len(s)/2-1] + s[len(s)/2]) / 2
	}
	return s[len(s)/2]
}

// Limit is what must hold: Peer's figure against Other's in the same rounds, or against a fixed value when Other is "".
type Limit struct {
	Scenario, Peer, Other string
	AtMost                bool
	Value                 float64
}

// Verdict is a limit with what was measured.
type Verdict struct {
	Limit
	Actual float64
	OK     bool
}

// Report is a whole run.
type Report struct {
	Machine  string
	Cells    []*Cell
	Verdicts []Verdict
}

// Add appends a round's figure.
func (r *Report) Add(scenario, peer, unit string, v float64) {
	c := r.find(scenario, peer)
	if c == nil {
		c = &Cell{Scenario: scenario, Peer: peer, Unit: unit}
		r.Cells = append(r.Cells, c)
	}
	c.Rounds = append(c.Rounds, v)
}

func (r *Report) find(scenario, peer string) *Cell {
	for _, c := range r.Cells {
		if c.Scenario == scenario && c.Peer == peer {
			return c
		}
	}
	return nil
}

// Judge measures the limits. A ratio is the median of the rounds' own ratios: the machine's speed drifts between rounds.
func (r *Report) Judge(limits []Limit) {
	for _, l := range limits {
		a := r.find(l.Scenario, l.Peer)
		if a == nil {
			continue
		}
		actual := a.Median()
		if l.Other != "" {
			b := r.find(l.Scenario, l.Other)
			if b == nil {
				continue
			}
			ratios := &Cell{}
			for i := range min(len(a.Rounds), len(b.Rounds)) {
				if b.Rounds[i] != 0 {
					ratios.Rounds = append(ratios.Rounds, a.Rounds[i]/b.Rounds[i])
				}
			}
			actual = ratios.Median()
		}
		r.Verdicts = append(r.Verdicts, Verdict{Limit: l, Actual: actual, OK: (actual <= l.Value) == l.AtMost || actual == l.Value})
	}
}

// Print writes the tables.
func (r *Report) Print(w io.Writer) error {
	p := &printer{w: w}
	p.f("%s\n\n%-34s %-18s %12s  %-8s %s\n", r.Machine, "SCENARIO", "PEER", "MEDIAN", "UNIT", "ROUNDS")
	for _, c := range r.Cells {
		p.f("%-34s %-18s %12.2f  %-8s", c.Scenario, c.Peer, c.Median(), c.Unit)
		for _, v := range c.Rounds {
			p.f(" %.1f", v)
		}
		p.f("\n")
	}
	p.f("\n%-34s %-18s %-18s %8s %8s\n", "LIMIT", "PEER", "AGAINST", "WANT", "GOT")
	for _, v := range r.Verdicts {
		sign, mark := "<=", "ok"
		if !v.AtMost {
			sign = ">="
		}
		if !v.OK {
			mark = "MISSED"
		}
		p.f("%-34s %-18s %-18s %s%6.2f %8.2f  %s\n", v.Scenario, v.Peer, v.Other, sign, v.Value, v.Actual, mark)
	}
	return p.err
}

type printer struct {
	w   io.Writer
	err error
}

func (p *printer) f(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}

// JSON writes the report for a machine.
func (r *Report) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(r)
}
