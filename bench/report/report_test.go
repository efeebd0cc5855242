package report

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMedian(t *testing.T) {
	for name, c := range map[string]struct {
		rounds []float64
		want   float64
	}{
		"none": {nil, 0}, "one": {[]float64{3}, 3}, "odd": {[]float64{9, 1, 2}, 2}, "even": {[]float64{4, 1, 2, 9}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			if got := (&Cell{Rounds: c.rounds}).Median(); got != c.want {
				t.Errorf("median of %v: got %v, want %v", c.rounds, got, c.want)
			}
		})
	}
}

func sample() *Report {
	var r Report
	for i, v := range []float64{10, 20, 40} { // the machine slows down; the ratio stays
		r.Add("cpu", "us", "us/req", v*[]float64{0.5, 0.6, 0.4}[i])
		r.Add("cpu", "them", "us/req", v)
	}
	r.Judge([]Limit{
		{Scenario: "cpu", Peer: "us", Other: "them", AtMost: true, Value: 0.5},
		{Scenario: "cpu", Peer: "us", Other: "them", AtMost: true, Value: 0.49},
		{Scenario: "cpu", Peer: "us", Other: "them", Value: 0.4},
		{Scenario: "cpu", Peer: "us", AtMost: true, Value: 11},
		{Scenario: "cpu", Peer: "us", Other: "nobody", AtMost: true, Value: 1},
	})
	return &r
}

func TestJudge(t *testing.T) {
	type got struct {
		Actual      float64
		OK, Missing bool
	}
	var all []got
	for _, v := range sample().Verdicts {
		all = append(all, got{v.Actual, v.OK, v.Missing})
	}
	want := []got{{0.5, true, false}, {0.5, false, false}, {0.5, true, false}, {12, false, false}, {0, false, true}}
	if diff := cmp.Diff(want, all); diff != "" {
		t.Errorf("verdicts (-want +got):\n%s", diff)
	}
}

func TestPrintAndJSON(t *testing.T) {
	var text, file bytes.Buffer
	r := sample()
	if err := r.Print(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"MISSED", "NOT MEASURED", "2 of 5 limits hold"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, &text)
		}
	}
	if err := r.JSON(&file); err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(file.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r, &back); diff != "" {
		t.Errorf("JSON and back (-want +got):\n%s", diff)
	}
}
