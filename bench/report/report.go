// Package report turns a benchmark's rounds into medians, ratios and verdicts, as a table and as JSON.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
)

// Cell is one figure of one peer in one scenario, once per round.
type Cell struct {
	Scenario string    `json:"scenario"`
	Peer     string    `json:"peer"`
	Unit     string    `json:"unit"`
	Rounds   []float64 `json:"rounds"`
}

// Median of the rounds.
func (c *Cell) Median() float64 { return quantile(c.Rounds, 0.5) }

// quantile interpolates between neighbours; 0 without values.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(values))
	at := q * float64(len(s)-1)
	i := int(at)
	if i+1 == len(s) {
		return s[i]
	}
	return s[i] + (s[i+1]-s[i])*(at-float64(i))
}

// Limit is what must hold: Peer's figure against Other's in the same rounds, or against a fixed value when Other is "".
type Limit struct {
	Scenario string  `json:"scenario"`
	Peer     string  `json:"peer"`
	Other    string  `json:"other,omitempty"`
	AtMost   bool    `json:"at_most"`
	Value    float64 `json:"value"`
}

// Verdict is a limit with what was measured. Low and High are the quartiles of the rounds' ratios: a limit between them is
// neither kept nor missed for certain. Without figures from both peers it is not OK either, and says Missing.
type Verdict struct {
	Limit
	Actual  float64 `json:"actual"`
	Low     float64 `json:"q1"`
	High    float64 `json:"q3"`
	OK      bool    `json:"ok"`
	Missing bool    `json:"missing,omitempty"`
}

// Report is a whole run.
type Report struct {
	Machine string `json:"machine"`
	// Elsewhere is the share of the processors, in percent, that other work had during the speed measurements.
	Elsewhere float64           `json:"busy_elsewhere_percent"`
	Versions  map[string]string `json:"versions,omitempty"`
	Cells     []*Cell           `json:"cells"`
	Verdicts  []Verdict         `json:"verdicts"`
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
		r.Verdicts = append(r.Verdicts, r.judge(l))
	}
}

func (r *Report) judge(l Limit) Verdict {
	got := r.rounds(l.Scenario, l.Peer, l.Other)
	if len(got) == 0 {
		return Verdict{Limit: l, Missing: true}
	}
	v := Verdict{Limit: l, Actual: quantile(got, 0.5), Low: quantile(got, 0.25), High: quantile(got, 0.75)}
	v.OK = v.Actual == l.Value || (v.Actual < l.Value) == l.AtMost
	return v
}

// rounds are the figures of peer, divided by those of other unless that is "".
func (r *Report) rounds(scenario, peer, other string) []float64 {
	a := r.find(scenario, peer)
	if a == nil {
		return nil
	}
	if other == "" {
		return a.Rounds
	}
	b := r.find(scenario, other)
	if b == nil {
		return nil
	}
	var ratios []float64
	for i := range min(len(a.Rounds), len(b.Rounds)) {
		if b.Rounds[i] > 0 {
			ratios = append(ratios, a.Rounds[i]/b.Rounds[i])
		}
	}
	return ratios
}

// Print writes a table of medians, a column per peer, and the verdicts.
func (r *Report) Print(w io.Writer) error {
	p := &printer{w: w}
	p.f("%s\n%.0f %% of the processors were busy with something else\n", r.Machine, r.Elsewhere)
	for _, name := range slices.Sorted(maps.Keys(r.Versions)) {
		p.f("%s: %s\n", name, r.Versions[name])
	}
	scenarios, names := r.axes()
	p.f("\n%-36s %-8s", "MEDIAN", "UNIT")
	for _, n := range names {
		p.f(" %13s", n)
	}
	p.f("\n")
	for _, s := range scenarios {
		p.f("%-36s %-8s", s.Scenario, s.Unit)
		for _, n := range names {
			if c := r.find(s.Scenario, n); c != nil {
				p.f(" %13.2f", c.Median())
			} else {
				p.f(" %13s", "-")
			}
		}
		p.f("\n")
	}
	p.f("\n%-36s %-14s %-14s %8s %8s  %-15s\n", "LIMIT", "OF", "AGAINST", "WANT", "GOT", "QUARTILES")
	held := 0
	for _, v := range r.Verdicts {
		sign, mark := "<=", "MISSED"
		if !v.AtMost {
			sign = ">="
		}
		switch {
		case v.OK:
			mark = "ok"
			held++
		case v.Missing:
			mark = "NOT MEASURED"
		}
		p.f("%-36s %-14s %-14s %s%6.2f %8.2f  [%.2f..%.2f]  %s\n", v.Scenario, v.Peer, v.Other, sign, v.Value, v.Actual, v.Low, v.High, mark)
	}
	p.f("\n%d of %d limits hold\n", held, len(r.Verdicts))
	return p.err
}

// axes are one cell of each scenario and the peers' names, in the order in which they were added.
func (r *Report) axes() (scenarios []*Cell, names []string) {
	for _, c := range r.Cells {
		if !slices.ContainsFunc(scenarios, func(s *Cell) bool { return s.Scenario == c.Scenario }) {
			scenarios = append(scenarios, c)
		}
		if !slices.Contains(names, c.Peer) {
			names = append(names, c.Peer)
		}
	}
	return scenarios, names
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
