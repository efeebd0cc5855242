package prove

import "testing"

func TestP99CountsThoseWhoAreNotBack(t *testing.T) {
	upTo := func(n int) (out []float64) { // in ms, backwards: the order says nothing
		for i := n; i > 0; i-- {
			out = append(out, float64(i*1000))
		}
		return out
	}
	for _, tt := range []struct {
		name          string
		returns, away []float64
		want          p99
	}{
		{"nobody left", nil, nil, p99{}},
		{"all back", upTo(10), nil, p99{seconds: 10, n: 10}},
		{"one in a hundred may need longer", upTo(100), nil, p99{seconds: 100, n: 100}},
		{"one in two hundred may not be back", upTo(199), []float64{1}, p99{seconds: 199, away: 1, n: 200}},
		{"two in two hundred may not", upTo(198), []float64{1, 2}, p99{seconds: 198, atLeast: true, away: 2, n: 200}},
		{"nobody back", nil, []float64{400, 800}, p99{seconds: 0.8, atLeast: true, away: 2, n: 2}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := p99Of(tt.returns, tt.away); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
	a, b := p99{seconds: 9}, p99{seconds: 1, atLeast: true}
	if a.worse(b) != b || b.worse(a) != b || a.worse(p99{seconds: 3}) != a {
		t.Error("a lower bound is worse than any figure, a longer wait worse than a shorter one")
	}
}
