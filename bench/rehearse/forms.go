package rehearse

import (
	"embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/lastcall-proxy/lastcall/bench/show"
)

//go:embed page.html
var pageFS embed.FS

// arrivalSlice is the bars' width, and bunching's.
const arrivalSlice = 0.1

// maxRows bounds the page's table of clients.
const maxRows = 1000

// HTML writes the page: one file, nothing loaded from elsewhere, no script.
func (r *Result) HTML(w io.Writer) error {
	t, err := template.New("page.html").Funcs(template.FuncMap{
		"style": func() template.CSS { return show.Style }, "ms": cell, "words": words, "headline": (*Result).headline,
		"groups":   func() []Group { return append(slices.Clone(r.Classes), r.All) },
		"clients":  func() []Client { return r.Clients[:min(len(r.Clients), maxRows)] },
		"more":     func() int { return max(0, len(r.Clients)-maxRows) },
		"arrivals": r.arrivals, "returns": r.returns,
		"opt": func(v *float64) string {
			if v == nil {
				return ""
			}
			return fmt.Sprintf("%.0f", *v)
		},
		"when": func(s string) string {
			at, err := time.Parse(time.RFC3339Nano, s)
			if err != nil {
				return s
			}
			return at.UTC().Format("2006-01-02 15:04:05 UTC")
		},
	}).ParseFS(pageFS, "page.html")
	if err != nil {
		return err
	}
	return t.Execute(w, r)
}

// arrivals draws when the clients of a class came back.
func (r *Result) arrivals(class string) template.HTML {
	last := 0.0
	for _, c := range r.Clients {
		if c.Reconnect != nil {
			last = max(last, c.TakenAt+*c.Reconnect/1e3)
		}
	}
	counts := make([]int, min(int(math.Ceil(max(last, 1)/arrivalSlice))+1, 20_000))
	for _, c := range r.Clients {
		if c.Reconnect != nil && (c.Class == class || class == "all") {
			counts[min(len(counts)-1, int(max(c.TakenAt+*c.Reconnect/1e3, 0)/arrivalSlice))]++
		}
	}
	return show.Bars(counts, arrivalSlice, "s from the start; a bar is 100 ms", "Arrivals of clients over time")
}

func (r *Result) returns() template.HTML {
	var all []float64
	never := 0
	for _, c := range r.Clients {
		switch {
		case c.Reconnect != nil:
			all = append(all, *c.Reconnect/1e3)
		case c.Outcome == "never":
			never++
		}
	}
	return show.Histogram(all, never, "Reconnects by the time they took")
}

// verdict is it in words.
func (r *Result) verdict() string {
	switch r.Verdict {
	case "met":
		return "carried out, within its limits"
	case "not_met":
		return "limits not met"
	}
	return "no verdict"
}

// headline says what was done.
func (r *Result) headline() string {
	pace, hold := "at once", ""
	if r.Plan.OverS > 0 {
		pace = fmt.Sprintf("over %g s", r.Plan.OverS)
	}
	if r.Plan.HoldS > 0 {
		hold = fmt.Sprintf(" for %g s", r.Plan.HoldS)
	}
	share := 0.0
	if r.Streams > 0 {
		share = float64(r.Picked) / float64(r.Streams)
	}
	return fmt.Sprintf("%s%s, %s: %d of %d streams (%.1f %%) on %d connections at %s, watched for %.0f s", r.Plan.Mode, hold, pace, r.Picked, r.Streams, share*100, r.Conns, r.Plan.Sidecar, r.Watched)
}

// cell is a figure of a distribution, "-" where nothing was seen.
func cell(q Quantiles, v float64) string {
	if q.N == 0 {
		return "-"
	}
	return (time.Duration(v*1000) * time.Microsecond).Round(time.Millisecond).String()
}

func words(m map[string]int) string {
	var out []string
	for _, o := range []string{"returned", "stayed", "never", "not_watched"} {
		if n := m[o]; n > 0 {
			out = append(out, fmt.Sprintf("%d %s", n, strings.ReplaceAll(o, "_", " ")))
		}
	}
	return strings.Join(out, ", ")
}

// Markdown writes the summary for a pull request.
func (r *Result) Markdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "## Rehearsal: %s\n\n%s\n\n", r.verdict(), show.Markdown(r.headline()))
	if r.Reason != "" {
		fmt.Fprintf(&b, "%s\n\n", show.Markdown(r.Reason))
	}
	if r.Partial {
		b.WriteString("**Partial**: it was interrupted, or a sidecar was lost.\n\n")
	}
	b.WriteString("| class | clients | outcomes | notice p50 | back p50 | p99 | max | tries | peak/100 ms | bunching |\n|---|---|---|---|---|---|---|---|---|---|\n")
	for _, g := range append(slices.Clone(r.Classes), r.All) {
		fmt.Fprintf(&b, "| %s | %d | %s | %s | %s | %s | %s | %.1f | %d | %.1f |\n", g.Class, g.Clients, words(g.Outcomes), cell(g.Notice, g.Notice.P50),
			cell(g.Reconnect, g.Reconnect.P50), cell(g.Reconnect, g.Reconnect.P99), cell(g.Reconnect, g.Reconnect.Max), g.Attempts, g.Peak, g.Bunching)
	}
	for _, j := range r.Limits {
		mark := "ok"
		if !j.OK {
			mark = "**over**"
		}
		fmt.Fprintf(&b, "\n%s: %s, at most %.4g: %s\n", j.Name, j.Found(), j.Limit, mark)
	}
	for _, a := range r.Advice {
		fmt.Fprintf(&b, "\n- %s", show.Markdown(a))
	}
	_, err := io.WriteString(w, strings.TrimRight(b.String(), "\n")+"\n")
	return err
}

// JUnit writes a test case per limit, or one that says that it was carried out; what could not be is an error.
func (r *Result) JUnit(w io.Writer) error {
	var cases []show.Case
	if r.Partial || r.Verdict == "none" {
		cases = append(cases, show.Case{Name: "verdict", Error: &show.Message{Message: r.Reason, Type: "none"}})
	}
	for _, j := range r.Limits {
		c := show.Case{Name: j.Name}
		if !j.OK {
			c.Failure = &show.Message{Message: fmt.Sprintf("%s, at most %.4g", j.Found(), j.Limit), Type: "threshold", Text: r.headline() + "\n" + strings.Join(r.Advice, "\n")}
		}
		cases = append(cases, c)
	}
	if len(cases) == 0 {
		cases = append(cases, show.Case{Name: "carried out"})
	}
	return show.JUnit(w, "lastcall.rehearse", r.Watched, cases)
}
