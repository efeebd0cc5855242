package show

import (
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"
)

// edges are a histogram's: 1, 2 and 5 of each decade, from a millisecond on; what takes longer is in the last.
var edges = func() (out []time.Duration) {
	for d := time.Millisecond; d <= 100*time.Second; d *= 10 {
		out = append(out, d, 2*d, 5*d)
	}
	return out
}()

// Histogram draws how many of the seconds lie between edges that grow by a factor, and, as a bar of its own, how many never
// came to an end; "" when there is neither.
func Histogram(seconds []float64, never int, label string) template.HTML {
	counts := make([]int, len(edges)+1)
	for _, s := range seconds {
		i, on := slices.BinarySearch(edges, time.Duration(s*float64(time.Second)))
		if on {
			i++ // an edge begins a bar
		}
		counts[i]++
	}
	from, to := len(counts), 0
	for i, n := range counts {
		if n > 0 {
			from, to = min(from, i), i+1
		}
	}
	from = min(from, to)
	bars := counts[from:to]
	if never > 0 {
		bars = append(slices.Clone(bars), never)
	}
	if len(bars) == 0 {
		return ""
	}
	each := min((wide-left-90)/float64(len(bars)), 70)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="small" viewBox="0 0 %g %g" role="img" aria-label="%s">`, wide, high, template.HTMLEscapeString(label))
	x := left
	for i, n := range bars {
		class, name := "flight", ""
		if never > 0 && i == len(bars)-1 {
			class, name = "never", "not back"
			if i > 0 {
				lastEdge(&b, x, to)
				x += 24
			}
		} else {
			name = spanOf(from + i)
		}
		h := (high - under - over) * float64(n) / float64(slices.Max(bars))
		fmt.Fprintf(&b, `<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f"><title>%d: %s</title></rect>`, class, x, high-under-h, each-2, h, n, name)
		if n > 0 {
			fmt.Fprintf(&b, `<text class="axis" text-anchor="middle" x="%.1f" y="%.1f">%d</text>`, x+each/2-1, high-under-h-4, n)
		}
		if class == "never" {
			fmt.Fprintf(&b, `<text class="axis" x="%.1f" y="%g">%s</text>`, x, high-10, name)
		} else if i > 0 || from > 0 {
			fmt.Fprintf(&b, `<text class="axis" text-anchor="middle" x="%.1f" y="%g">%s</text>`, max(x-1, left+8), high-10, edges[from+i-1])
		}
		x += each
	}
	if never == 0 {
		lastEdge(&b, x, to)
	}
	fmt.Fprintf(&b, `<line class="tick" x1="%g" x2="%.1f" y1="%g" y2="%g"/></svg>`, left, x, high-under, high-under)
	return template.HTML(b.String()) //nolint:gosec // numbers and our own words, escaped
}

// A histogram's measures, in the units of its viewBox.
const wide, high, left, under, over = 480.0, 170.0, 6.0, 26.0, 18.0

// lastEdge names the edge behind bar i-1, if it has one.
func lastEdge(b *strings.Builder, x float64, i int) {
	if i < len(edges)+1 && i > 0 {
		fmt.Fprintf(b, `<text class="axis" text-anchor="middle" x="%.1f" y="%g">%s</text>`, x-1, high-10, edges[i-1])
	}
}

// spanOf names the bar before edge i.
func spanOf(i int) string {
	switch i {
	case 0:
		return "less than " + edges[0].String()
	case len(edges):
		return edges[i-1].String() + " or more"
	}
	return edges[i-1].String() + " to " + edges[i].String()
}
