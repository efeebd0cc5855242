// Package show has what the documents' other forms share: the pages' style and small charts, JUnit XML, Markdown.
package show

import (
	_ "embed"
	"fmt"
	"html/template"
	"strings"
	"unicode"
)

//go:embed style.css
var style string

// Style is every page's: light and dark, on paper too, nothing from elsewhere.
var Style = template.CSS(style) //nolint:gosec // our own file

// Markdown makes a text fit for a cell of a Markdown table: nothing in it is markup.
func Markdown(s string) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	return strings.NewReplacer(`\`, `\\`, "|", `\|`, "[", `\[`, "]", `\]`, "*", `\*`, "_", `\_`, "<", "&lt;", "&", "&amp;", "`", "'").Replace(s)
}

// Curve draws a cumulative count of all; "" when there is nothing.
func Curve(all []float64, axis, label string) template.HTML {
	if len(all) == 0 {
		return ""
	}
	const wide, high, left, under = 480.0, 150.0, 40.0, 28.0
	most := 0.0
	for _, v := range all {
		most = max(most, v)
	}
	most = max(most*1.05, 0.1)
	bins := make([]int, 101)
	for _, v := range all {
		bins[min(100, int(100*max(v, 0)/most))]++
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="small" viewBox="0 0 %g %g" role="img" aria-label="%s"><path class="flight" d="M%g %g`, wide, high, label, left, high-under)
	sum := 0
	for i, n := range bins {
		sum += n
		fmt.Fprintf(&b, "L%.1f %.1f", left+(wide-left-10)*float64(i)/100, high-under-(high-under-14)*float64(sum)/float64(len(all)))
	}
	fmt.Fprintf(&b, `V%gZ"/><text class="axis" x="2" y="18">%d</text><text class="axis" x="%g" y="%g">0</text><text class="axis" text-anchor="end" x="%g" y="%g">%.2f %s</text></svg>`, high-under, len(all), left, high-10, wide-8, high-10, most, axis)
	return template.HTML(b.String()) //nolint:gosec // numbers and our own words
}

// Bars draws counts per slice of time, from 0 on; "" when there is nothing.
func Bars(counts []int, slice float64, axis, label string) template.HTML {
	most := 0
	for _, n := range counts {
		most = max(most, n)
	}
	if most == 0 {
		return ""
	}
	const wide, high, left, under = 1000.0, 170.0, 44.0, 28.0
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %g %g" role="img" aria-label="%s"><text class="axis" x="2" y="18">%d</text>`, wide, high, template.HTMLEscapeString(label), most)
	each := (wide - left - 10) / float64(len(counts))
	for i, n := range counts {
		if n == 0 {
			continue
		}
		h := (high - under - 12) * float64(n) / float64(most)
		fmt.Fprintf(&b, `<rect class="flight" x="%.2f" y="%.1f" width="%.2f" height="%.1f"><title>%d at %.1f s</title></rect>`, left+each*float64(i), high-under-h, max(each-1, 0.6), h, n, slice*float64(i))
	}
	fmt.Fprintf(&b, `<line class="tick" x1="%g" x2="%g" y1="%g" y2="%g"/><text class="axis" x="%g" y="%g">0</text><text class="axis" text-anchor="end" x="%g" y="%g">%.1f %s</text></svg>`,
		left, wide-10, high-under, high-under, left, high-9, wide-8, high-9, slice*float64(len(counts)), template.HTMLEscapeString(axis))
	return template.HTML(b.String()) //nolint:gosec // numbers and our own words, escaped
}
