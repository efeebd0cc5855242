package show_test

import (
	"encoding/xml"
	"regexp"
	"strings"
	"testing"

	"github.com/lastcall-proxy/lastcall/bench/show"
)

func TestHistogram(t *testing.T) {
	title := regexp.MustCompile(`<title>([^<]*)</title>`)
	for _, tt := range []struct {
		name    string
		seconds []float64
		never   int
		want    string
	}{
		{"nothing", nil, 0, ""},
		{"nobody came back", nil, 3, "3: not back"},
		{"an edge begins a bar", []float64{0.001, 0.0019, 0.002}, 0, "2: 1ms to 2ms|1: 2ms to 5ms"},
		{"gaps stay", []float64{0.0005, 0.004}, 1, "1: less than 1ms|0: 1ms to 2ms|1: 2ms to 5ms|1: not back"},
		{"long ones", []float64{499, 501, 4000}, 0, "1: 3m20s to 8m20s|2: 8m20s or more"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := string(show.Histogram(tt.seconds, tt.never, `a "label" <with> marks`))
			var bars []string
			for _, m := range title.FindAllStringSubmatch(got, -1) {
				bars = append(bars, m[1])
			}
			if s := strings.Join(bars, "|"); s != tt.want {
				t.Errorf("got %s, want %s", s, tt.want)
			}
			var any struct{}
			if err := xml.Unmarshal([]byte(got), &any); got != "" && err != nil {
				t.Errorf("not well-formed: %v", err)
			}
		})
	}
}
