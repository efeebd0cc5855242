package proof

import (
	"fmt"
	"io"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/lastcall-proxy/lastcall/bench/show"
)

// mark is a verdict in words.
func (v Verdict) mark() string {
	switch v {
	case Proven:
		return "PROVEN"
	case NotProven:
		return "NOT PROVEN"
	case NoVerdict:
		return "NO VERDICT"
	}
	return string(v)
}

// writer keeps the first error.
type writer struct {
	w   io.Writer
	err error
}

func (p *writer) f(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}

// Text writes the summary for a terminal: 100 columns.
func (p *Proof) Text(w io.Writer) error {
	o := &writer{w: w}
	o.f("\n%s: %s\n", p.Verdict.mark(), p.Reason)
	if p.Partial {
		o.f("PARTIAL: it was broken off; what follows is true, but not all\n")
	}
	for i := range p.Runs {
		r := &p.Runs[i]
		if len(p.Runs) > 1 {
			o.f("\nrun %d\n", i+1)
		}
		o.f("\nbaseline %.1f s: %d attempts, %d failed\n", r.Baseline.Seconds, r.Baseline.Attempted, r.Baseline.Failed)
		for _, ph := range r.Phases {
			o.f("%-12s %+7.1f s to %+7.1f s\n", ph.Name, ph.From, ph.To)
		}
		o.f("\n%-12s %9s %9s %7s %7s %9s %9s %9s  %s\n", "LOAD", "ATTEMPTS", "GOOD", "FAILED", "CONNS", "P50 MS", "P99 MS", "MAX MS", "OUTCOMES")
		for k := range r.Loads {
			l := &r.Loads[k]
			o.f("%-12s %9d %9d %7d %7d %9s %9s %9s  %s\n", l.Kind, l.Attempted, l.Succeeded, l.Failed, l.Connections.Opened, l.MS(l.Latency.P50), l.MS(l.Latency.P99), l.MS(l.Latency.Max), outcomes(l.Outcomes))
			if s := l.Sessions; s != nil {
				o.f("%-12s %d opened, %d ended by the far side, %d of them cut, %d came back%s%s; messages: %d sent, %d received, %d lost, %d twice, %d out of order, %d crossed a goodbye\n", "", s.Opened, s.Ended, s.Cut, s.Reconnected, back(s.ReconnectMS), notBack(s), s.Messages.Sent, s.Messages.Received, s.Messages.Lost, s.Messages.Duplicated, s.Messages.Reordered, s.Messages.Unanswered)
			}
		}
		failureLines(o, r)
		if len(r.Advice) > 0 {
			o.f("\nadvice\n")
		}
		for _, a := range r.Advice {
			o.f("  %s\n", a)
		}
		for k := range r.Sidecars {
			s := &r.Sidecars[k]
			o.f("\nsidecar %s: %s; %d late arrivals%s\n", s.Addr, outcomes(s.Fates), len(s.Late), lastOf(s.Late))
			for _, a := range s.Advice {
				o.f("  %s\n", a)
			}
			if s.Problem != "" {
				o.f("  %s\n", s.Problem)
			}
		}
	}
	o.f("\n%-22s %10s %10s\n", "THRESHOLD", "AT MOST", "FOUND")
	for _, t := range p.Thresholds {
		mark := "ok"
		if !t.OK {
			mark = "OVER"
		}
		o.f("%-22s %10s %10s  %s\n", t.Name, t.AtMost(), t.Found(), mark)
	}
	o.f("\nthe load side took %.1f s of CPU and %.0f MiB\n", p.Cost.CPU, p.Cost.Memory)
	return o.err
}

// sessionRows is the table of the long-lived kinds in Markdown.
func sessionRows(o *writer, r *Run) {
	if !slices.ContainsFunc(r.Loads, func(l Load) bool { return l.Sessions != nil }) {
		return
	}
	o.f("\n| sessions | opened | ended | cut | came back | not by the end | messages lost | twice | out of order |\n|---|---|---|---|---|---|---|---|---|\n")
	for k := range r.Loads {
		if s := r.Loads[k].Sessions; s != nil {
			o.f("| %s | %d | %d | %d | %d%s | %d | %d | %d | %d |\n", r.Loads[k].Kind, s.Opened, s.Ended, s.Cut, s.Reconnected, back(s.ReconnectMS), s.Away, s.Messages.Lost, s.Messages.Duplicated, s.Messages.Reordered)
		}
	}
}

// group is failures of one sort.
type group struct {
	Phase, Kind, Outcome, Attributed, Wire string
	N                                      int
	First, Last                            float64
	Fate, FateID                           string // of the first
}

// groups puts like failures together, the most frequent first.
func (r *Run) groups() []group {
	by := map[[5]string]*group{}
	var order []*group
	for i := range r.Failures {
		f := &r.Failures[i]
		key := [5]string{f.Phase, f.Kind, f.Outcome, f.Attributed, f.Wire}
		g := by[key]
		if g == nil {
			g = &group{Phase: f.Phase, Kind: f.Kind, Outcome: f.Outcome, Attributed: f.Attributed, Wire: f.Wire, First: f.At, Fate: f.Fate, FateID: f.FateID}
			by[key] = g
			order = append(order, g)
		}
		g.N++
		g.Last = f.At
	}
	sort.SliceStable(order, func(a, b int) bool { return order[a].N > order[b].N })
	out := make([]group, len(order))
	for i, g := range order {
		out[i] = *g
	}
	return out
}

// maxGroups is how many sorts of failure the terminal gets, maxRows a document; the JSON has each failure.
const (
	maxGroups = 20
	maxRows   = 200
)

// rows are the sorts of failure that a document shows, and how many more there are.
func (r *Run) rows() (shown []group, more int) {
	g := r.groups()
	n := min(len(g), maxRows)
	return g[:n], len(g) - n
}

func failureLines(o *writer, r *Run) {
	if len(r.Failures) == 0 {
		if r.nothing() {
			o.f("\nno client saw anything go wrong, and none saw anything come\n")
		} else {
			o.f("\nno client saw anything go wrong\n")
		}
		return
	}
	o.f("\n%6s %-12s %-12s %-18s %-12s %s\n", "COUNT", "PHASE", "LOAD", "OUTCOME", "WHOSE DOING", "WHAT")
	groups := r.groups()
	for _, g := range groups[:min(len(groups), maxGroups)] {
		what := strings.TrimPrefix(fmt.Sprintf("%s, %+.1f s to %+.1f s", g.Wire, g.First, g.Last), ", ")
		if g.FateID != "" {
			what += fmt.Sprintf("; first is %s, %s", g.FateID, g.Fate)
		}
		o.f("%6d %-12s %-12s %-18s %-12s %s\n", g.N, g.Phase, g.Kind, g.Outcome, g.Attributed, what)
	}
	if n := len(groups) - maxGroups; n > 0 {
		o.f("and %d more sorts\n", n)
	}
}

func outcomes(m map[string]uint64) string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	var out []string
	for _, k := range keys {
		out = append(out, fmt.Sprintf("%d %s", m[k], k))
	}
	return strings.Join(out, ", ")
}

func back(ms []float64) string {
	if len(ms) == 0 {
		return ""
	}
	return fmt.Sprintf(" (median %.0f ms, p99 %.0f ms)", ms[len(ms)/2], ms[min(len(ms)-1, len(ms)*99/100)])
}

func notBack(s *Sessions) string {
	if s.Away == 0 {
		return ""
	}
	return fmt.Sprintf(", %d not by the end", s.Away)
}

// Found is what was found, for the eye.
func (t Threshold) Found() string {
	if t.AtLeast {
		return "> " + t.value(t.Actual)
	}
	return t.value(t.Actual)
}

// AtMost is the limit, for the eye.
func (t Threshold) AtMost() string { return t.value(t.Limit) }

func (t Threshold) value(v float64) string {
	text := strconv.FormatFloat(math.Round(v*1000)/1000, 'f', -1, 64)
	if strings.HasSuffix(t.Name, "_p99") {
		text += " s"
	}
	return text
}

// MS is a latency of the load's; a session has none.
func (l Load) MS(v float64) string {
	if l.Sessions != nil {
		return "-"
	}
	return strconv.FormatFloat(v, 'f', 1, 64)
}

// nothing says that no load had an answer.
func (r *Run) nothing() bool {
	return !slices.ContainsFunc(r.Loads, func(l Load) bool { return l.Succeeded > 0 })
}

func lastOf(late []float64) string {
	if len(late) == 0 {
		return ""
	}
	return fmt.Sprintf(", the last at %+.1f s", slices.Max(late))
}

// Markdown writes the summary for a pull request.
func (p *Proof) Markdown(w io.Writer) error {
	o := &writer{w: w}
	o.f("## %s\n\n%s\n\n", p.Verdict.mark(), show.Markdown(p.Reason))
	if p.Partial {
		o.f("**Partial**: it was broken off.\n\n")
	}
	o.f("| threshold | at most | found | |\n|---|---|---|---|\n")
	for _, t := range p.Thresholds {
		mark := "ok"
		if !t.OK {
			mark = "**over**"
		}
		o.f("| %s | %s | %s | %s |\n", t.Name, t.AtMost(), t.Found(), mark)
	}
	for i := range p.Runs {
		r := &p.Runs[i]
		o.f("\n### Run %d\n\n| load | attempts | good | failed | connections | p50 ms | p99 ms | outcomes |\n|---|---|---|---|---|---|---|---|\n", i+1)
		for k := range r.Loads {
			l := &r.Loads[k]
			o.f("| %s | %d | %d | %d | %d | %s | %s | %s |\n", l.Kind, l.Attempted, l.Succeeded, l.Failed, l.Connections.Opened, l.MS(l.Latency.P50), l.MS(l.Latency.P99), outcomes(l.Outcomes))
		}
		sessionRows(o, r)
		for _, ph := range r.Phases {
			o.f("\n- %s: %+.1f s to %+.1f s", ph.Name, ph.From, ph.To)
		}
		for k := range r.Sidecars {
			for _, a := range r.Sidecars[k].Advice {
				o.f("\n- sidecar %s: %s", show.Markdown(r.Sidecars[k].Addr), show.Markdown(a))
			}
		}
		for _, a := range r.Advice {
			o.f("\n- %s", show.Markdown(a))
		}
		o.f("\n")
		if len(r.Failures) == 0 {
			continue
		}
		o.f("\n| count | phase | load | outcome | whose doing | when | what |\n|---|---|---|---|---|---|---|\n")
		rows, more := r.rows()
		for _, g := range rows {
			o.f("| %d | %s | %s | %s | %s | %+.1f s to %+.1f s | %s |\n", g.N, g.Phase, g.Kind, g.Outcome, g.Attributed, g.First, g.Last, show.Markdown(strings.TrimSpace(g.Wire+" "+g.FateID+" "+g.Fate)))
		}
		if more > 0 {
			o.f("\nand %d more sorts\n", more)
		}
	}
	return o.err
}
