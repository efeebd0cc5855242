package proof

import (
	"embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"strings"
	"time"

	"github.com/lastcall-proxy/lastcall/bench/show"
)

//go:embed page.html
var pageFS embed.FS

// HTML writes the page: one file, nothing loaded from elsewhere, no script.
func (p *Proof) HTML(w io.Writer) error {
	t, err := template.New("page.html").Funcs(template.FuncMap{
		"outcomes": outcomes, "back": back, "notBack": notBack, "chart": chart, "groups": func(r *Run) []group { g, _ := r.rows(); return g }, "more": func(r *Run) int { _, n := r.rows(); return n }, "late": lateCurve, "returns": returns, "mark": Verdict.mark, "style": func() template.CSS { return show.Style },
		"when": func(s string) string {
			at, err := time.Parse(time.RFC3339Nano, s)
			if err != nil {
				return s
			}
			return at.UTC().Format("2006-01-02 15:04:05 UTC")
		},
		"seconds": func(v *float64) string { return fmt.Sprintf("%.2f", *v) },
		"plus":    func(i int) int { return i + 1 },
	}).ParseFS(pageFS, "page.html")
	if err != nil {
		return err
	}
	return t.Execute(w, p)
}

// The chart's measures, in SVG units.
const (
	chartWide  = 1000.0
	chartLeft  = 110.0
	laneHigh   = 64.0
	chartTop   = 30.0
	chartUnder = 26.0
)

type scale struct{ from, to float64 }

func (s scale) x(at float64) float64 {
	return chartLeft + (chartWide-chartLeft-10)*(at-s.from)/max(s.to-s.from, 1e-9)
}

// chart draws a run: phases as bands, one lane per load with what was in flight, each failure a mark.
func chart(r *Run) template.HTML {
	sc := scale{0, r.End}
	for _, ph := range r.Phases {
		sc.from = min(sc.from, ph.From)
	}
	high := chartTop + laneHigh*float64(len(r.Loads)) + chartUnder
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %g %g" role="img" aria-label="Timeline of the run: phases, what was in flight, failures">`, chartWide, high)
	for _, ph := range r.Phases {
		x, end := sc.x(ph.From), sc.x(ph.To)
		fmt.Fprintf(&b, `<g><title>%s, %+.1f s to %+.1f s</title><rect class="band %s" x="%.1f" y="%g" width="%.1f" height="%.1f"/>`, template.HTMLEscapeString(ph.Name), ph.From, ph.To, template.HTMLEscapeString(ph.Name), x, chartTop-6, max(end-x, 0.5), high-chartTop-chartUnder+6)
		if end-x > 7*float64(len(ph.Name)) {
			fmt.Fprintf(&b, `<text class="phase" x="%.1f" y="16">%s</text>`, x+3, template.HTMLEscapeString(ph.Name))
		}
		b.WriteString(`</g>`)
	}
	for i := range r.Loads {
		lane(&b, r, i, sc)
	}
	for at := math.Ceil(sc.from/step(sc)) * step(sc); at <= sc.to; at += step(sc) {
		x := sc.x(at)
		text := min(x, chartWide-18) // the last one stays inside
		fmt.Fprintf(&b, `<line class="tick" x1="%.1f" x2="%.1f" y1="%g" y2="%g"/><text class="axis" text-anchor="middle" x="%.1f" y="%g">%+g s</text>`, x, x, high-chartUnder, high-chartUnder+5, text, high-7, at)
	}
	x := sc.x(0)
	fmt.Fprintf(&b, `<line class="trigger" x1="%.1f" x2="%.1f" y1="%g" y2="%g"><title>the trigger</title></line></svg>`, x, x, chartTop-8, high-chartUnder)
	return template.HTML(b.String()) //nolint:gosec // every word in it is escaped above
}

func step(sc scale) float64 {
	for _, s := range []float64{1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800} {
		if (sc.to-sc.from)/s <= 12 {
			return s
		}
	}
	return 3600
}

func lane(b *strings.Builder, r *Run, i int, sc scale) {
	l := &r.Loads[i]
	top := chartTop + laneHigh*float64(i)
	base := top + laneHigh - 14
	most := 1
	for _, n := range l.Timeline.Open {
		most = max(most, n)
	}
	fmt.Fprintf(b, `<text class="lane" x="4" y="%.1f">%s</text><text class="axis" x="4" y="%.1f">%d at most</text>`, top+22, template.HTMLEscapeString(l.Kind), top+36, most)
	b.WriteString(`<path class="flight" d="`)
	fmt.Fprintf(b, "M%.1f %.1f", sc.x(l.Timeline.From), base)
	for k, n := range l.Timeline.Open {
		at := l.Timeline.From + float64(k)*l.Timeline.Slice
		if at > sc.to {
			break
		}
		y := base - (laneHigh-24)*float64(n)/float64(most)
		fmt.Fprintf(b, "L%.1f %.1fL%.1f %.1f", sc.x(at), y, sc.x(min(at+l.Timeline.Slice, sc.to)), y)
	}
	fmt.Fprintf(b, `V%.1fZ"><title>%s in flight</title></path>`, base, template.HTMLEscapeString(l.Kind))
	last := math.Inf(-1) // marks that lie on each other are one
	for k := range r.Failures {
		f := &r.Failures[k]
		if f.Kind != l.Kind {
			continue
		}
		x := sc.x(f.At)
		if x-last < 1.5 {
			continue
		}
		last = x
		class := "fail"
		if f.Attributed == "unexplained" {
			class = "fail unexplained"
		}
		fmt.Fprintf(b, `<path class="%s" d="M%.1f %.1fl4 4-4 4-4-4z"><title>%+.2f s %s: %s, %s, by %s %s %s</title></path>`, class, x, base+2, f.At, template.HTMLEscapeString(f.Phase), template.HTMLEscapeString(f.Outcome), template.HTMLEscapeString(f.Wire), template.HTMLEscapeString(f.Attributed), template.HTMLEscapeString(f.FateID), template.HTMLEscapeString(f.Fate))
	}
}

// lateCurve draws how many arrivals were still to come at each moment after the trigger.
func lateCurve(r *Run) template.HTML {
	var all []float64
	for i := range r.Sidecars {
		all = append(all, r.Sidecars[i].Late...)
	}
	return show.Curve(all, "s after the trigger", "Late arrivals, added up over time")
}

// returns draws how fast clients came back.
func returns(r *Run) template.HTML {
	var all []float64
	away := 0
	for i := range r.Loads {
		if s := r.Loads[i].Sessions; s != nil {
			for _, ms := range s.ReconnectMS {
				all = append(all, ms/1e3)
			}
			away += s.Away
		}
	}
	return show.Histogram(all, away, "Reconnects by the time they took")
}
