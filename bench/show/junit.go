package show

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
)

// Case is a test case of a JUnit document: it passed, failed, or could not be judged.
type Case struct {
	Name           string
	Failure, Error *Message
}

// Message says why.
type Message struct{ Message, Type, Text string }

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

// JUnit writes one suite.
func JUnit(w io.Writer, name string, seconds float64, cases []Case) error {
	s := junitSuite{Name: name, Tests: len(cases), Time: fmt.Sprintf("%.3f", seconds)}
	form := func(m *Message, n *int) *junitMessage {
		if m == nil {
			return nil
		}
		*n++
		return &junitMessage{Message: clean(m.Message), Type: m.Type, Text: clean(m.Text)}
	}
	for _, c := range cases {
		s.Cases = append(s.Cases, junitCase{Name: clean(c.Name), Class: name, Time: "0", Failure: form(c.Failure, &s.Failures), Error: form(c.Error, &s.Errors)})
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
