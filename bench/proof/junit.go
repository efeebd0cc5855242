package proof

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
)

type junitSuites struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Errors   int          `xml:"errors,attr"`
	Suites   []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Errors   int         `xml:"errors,attr"`
	Time     string      `xml:"time,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Name    string        `xml:"name,attr"`
	Class   string        `xml:"classname,attr"`
	Time    string        `xml:"time,attr"`
	Failure *junitMessage `xml:"failure,omitempty"`
	Error   *junitMessage `xml:"error,omitempty"`
}

type junitMessage struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr"`
	Text    string `xml:",chardata"`
}

// JUnit writes a test case per threshold; without a verdict, one case with an error.
func (p *Proof) JUnit(w io.Writer) error {
	var took float64
	for i := range p.Runs {
		took += p.Runs[i].End + p.Runs[i].Baseline.Seconds
	}
	s := junitSuite{Name: "lastcall.prove", Time: fmt.Sprintf("%.3f", took)}
	add := func(c junitCase) {
		s.Tests++
		if c.Failure != nil {
			s.Failures++
		}
		if c.Error != nil {
			s.Errors++
		}
		c.Class, c.Time = "lastcall.prove", "0"
		s.Cases = append(s.Cases, c)
	}
	if p.Verdict == NoVerdict {
		add(junitCase{Name: "verdict", Error: &junitMessage{Message: clean(p.Reason), Type: "no_verdict"}})
	}
	var detail strings.Builder
	for i := range p.Runs {
		for _, g := range p.Runs[i].groups() {
			fmt.Fprintf(&detail, "run %d: %d x %s %s in %s, by %s: %s %s %s\n", i+1, g.N, g.Kind, g.Outcome, g.Phase, g.Attributed, g.Wire, g.FateID, g.Fate)
		}
	}
	for _, t := range p.Thresholds {
		c := junitCase{Name: t.Name}
		if !t.OK {
			c.Failure = &junitMessage{Message: fmt.Sprintf("%g, at most %g", t.Actual, t.Limit), Type: "threshold", Text: clean(detail.String())}
		}
		add(c)
	}
	doc := junitSuites{Tests: s.Tests, Failures: s.Failures, Errors: s.Errors, Suites: []junitSuite{s}}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(doc); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// clean takes out what XML 1.0 can't hold.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || r >= ' ' && r != 0xfffe && r != 0xffff {
			return r
		}
		return -1
	}, s)
}
