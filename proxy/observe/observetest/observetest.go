// Package observetest drives observers in tests: it records what they report, applies their edits as the relay does, and
// checks that no way of cutting the bytes into reads makes a difference.
package observetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lastcall-proxy/lastcall/proxy/observe"
)

// Step is one thing that happens to a connection: bytes, a FIN, or an order.
type Step struct {
	Dir   observe.Direction
	Data  string
	EOF   bool
	Order *observe.Order
}

// Client and App are steps with bytes of one side.
func Client(data string) Step { return Step{Dir: observe.FromClient, Data: data} }

// App is a step with the app's bytes.
func App(data string) Step { return Step{Dir: observe.FromApp, Data: data} }

// EOF is a side's FIN.
func EOF(dir observe.Direction) Step { return Step{Dir: dir, EOF: true} }

// Tell is an order.
func Tell(o observe.Order) Step { return Step{Order: &o} }

// Recorder is a Sink whose Events say in words what was reported. Bytes are summed per stream and direction.
type Recorder struct {
	Events []string
	Bytes  map[string]int
	Agents map[string]bool // user agents that Admit lets pass
	n      int
}

// Stream is the recorder's observe.Stream.
type Stream struct {
	r    *Recorder
	name string
	done bool
}

func (r *Recorder) add(format string, args ...any) {
	r.Events = append(r.Events, fmt.Sprintf(format, args...))
}

// Begin is observe.Sink's.
func (r *Recorder) Begin(k observe.Kind) observe.Stream {
	r.n++
	s := &Stream{r: r, name: fmt.Sprintf("s%d", r.n)}
	r.add("%s begin %d", s.name, k)
	return s
}

// Protocol is observe.Sink's.
func (r *Recorder) Protocol(k observe.Kind) { r.add("protocol %d", k) }

// Hello is observe.Sink's.
func (r *Recorder) Hello(sni, alpn, version string) { r.add("hello %q %q %q", sni, alpn, version) }

// Admit is observe.Sink's.
func (r *Recorder) Admit(q *observe.Request) bool {
	r.add("admit %s %s", q.Method, q.Path)
	return r.Agents[string(q.UserAgent)]
}

// Farewell is observe.Sink's.
func (r *Recorder) Farewell(own bool) { r.add("farewell own=%t", own) }

// CloseAfter is observe.Sink's.
func (r *Recorder) CloseAfter() { r.add("close after") }

// Broken is observe.Sink's.
func (r *Recorder) Broken(reason string) { r.add("broken %s", reason) }

// LostTrack is observe.Sink's.
func (r *Recorder) LostTrack(reason string) { r.add("lost %s", reason) }

func (s *Stream) add(format string, args ...any) {
	if s.done {
		panic("observetest: stream used after Done")
	}
	s.r.add(s.name+" "+format, args...)
}

// Head is observe.Stream's.
func (s *Stream) Head(q *observe.Request) {
	s.add("head %s %s %s %q kind=%d", q.Method, q.Path, q.Authority, q.UserAgent, q.Kind)
}

// Status is observe.Stream's.
func (s *Stream) Status(code int) { s.add("status %d", code) }

// GRPCStatus is observe.Stream's.
func (s *Stream) GRPCStatus(code int) { s.add("grpc status %d", code) }

// HalfClosed is observe.Stream's.
func (s *Stream) HalfClosed(d observe.Direction) { s.add("half closed %s", d) }

// SetKind is observe.Stream's.
func (s *Stream) SetKind(k observe.Kind) { s.add("kind %d", k) }

// State is observe.Stream's.
func (s *Stream) State(w observe.Waiting, g observe.Stage) { s.add("state %d %d", w, g) }

// Bytes is observe.Stream's.
func (s *Stream) Bytes(d observe.Direction, n int) {
	if s.done {
		panic("observetest: stream used after Done")
	}
	if n != 0 {
		s.r.Bytes[s.name+" "+d.String()] += n
	}
}

// Message is observe.Stream's.
func (s *Stream) Message(d observe.Direction) { s.add("message %s", d) }

// Done is observe.Stream's.
func (s *Stream) Done(o observe.Outcome) {
	reset := ""
	if o.Reset != "" {
		reset = " reset " + o.Reset
	}
	s.add("done %d by %s code %d%s", o.Verdict, o.By, o.CloseCode, reset)
	s.done = true
}

// Result is what came of a run: the two flows as they left, and the reports.
type Result struct {
	Out    [2]string // by source: to the app, to the client
	Events []string
	Bytes  map[string]int
}

// Run plays steps to an observer, its bytes cut into pieces of at most size (0: whole). Each piece is overwritten after the
// call that it was for: an observer that kept it shows.
func Run(t testing.TB, newObs func(observe.Sink) observe.Observer, steps []Step, size int, agents ...string) Result {
	t.Helper()
	cut := func(rest int) int {
		if size > 0 {
			return min(rest, size)
		}
		return rest
	}
	return run(t, newObs, steps, cut, agents)
}

// run plays steps, in pieces as long as cut says of what is left of a step.
func run(t testing.TB, newObs func(observe.Sink) observe.Observer, steps []Step, cut func(rest int) int, agents []string) Result {
	t.Helper()
	r := &Recorder{Bytes: make(map[string]int), Agents: make(map[string]bool)}
	for _, a := range agents {
		r.Agents[a] = true
	}
	o := newObs(r)
	var out [2][]byte
	others := func(edits []observe.Edit) {
		for _, e := range edits {
			out[e.Dir] = append(out[e.Dir], e.Insert...)
		}
	}
	for _, s := range steps {
		switch {
		case s.Order != nil:
			others(o.Tell(*s.Order))
		case s.EOF:
			others(o.EOF(s.Dir))
		default:
			for rest := []byte(s.Data); len(rest) > 0; {
				n := cut(len(rest))
				out = apply(t, out, o.Data(s.Dir, rest[:n]), s.Dir, rest[:n])
				for i := range n {
					rest[i] = 0xa5
				}
				rest = rest[n:]
			}
		}
	}
	return Result{Out: [2]string{string(out[0]), string(out[1])}, Events: ordered(r.Events), Bytes: r.Bytes}
}

func apply(t testing.TB, out [2][]byte, edits []observe.Edit, dir observe.Direction, p []byte) [2][]byte {
	t.Helper()
	at := 0
	for _, e := range edits {
		if e.Dir != dir {
			out[e.Dir] = append(out[e.Dir], e.Insert...)
			continue
		}
		if e.Off < at || e.Off+e.Drop > len(p) {
			t.Fatalf("edit out of place: off %d drop %d, at %d of %d", e.Off, e.Drop, at, len(p))
		}
		out[dir] = append(append(out[dir], p[at:e.Off]...), e.Insert...)
		at = e.Off + e.Drop
	}
	out[dir] = append(out[dir], p[at:]...)
	return out
}

// everyCut bounds the bytes up to which Splits cuts at each single place: the work grows with their square.
const everyCut = 1 << 10

// Splits plays steps whole, cut into pieces of every size up to 40, and, where they are short enough, cut in two at every
// place; it fails where the result differs. It returns the result of the whole run.
func Splits(t testing.TB, newObs func(observe.Sink) observe.Observer, steps []Step, agents ...string) Result {
	t.Helper()
	whole := Run(t, newObs, steps, 0, agents...)
	for size := 1; size <= 40; size++ {
		if diff := cmp.Diff(whole, Run(t, newObs, steps, size, agents...)); diff != "" {
			t.Fatalf("cut into pieces of %d it differs (-whole +cut):\n%s", size, diff)
		}
	}
	longest := 0
	for _, s := range steps {
		longest = max(longest, len(s.Data))
	}
	for last := 1; last < longest && longest <= everyCut; last++ {
		cut := func(rest int) int {
			if rest > last {
				return rest - last
			}
			return rest
		}
		if diff := cmp.Diff(whole, run(t, newObs, steps, cut, agents)); diff != "" {
			t.Fatalf("cut in two, %d bytes before the end, it differs (-whole +cut):\n%s", last, diff)
		}
	}
	return whole
}

// ordered sorts each run of state reports that follow one another by their stream: one frame can change the turn on many streams at once (a
// connection's window opens), and which of them is told first means nothing.
func ordered(events []string) []string {
	from := -1
	for i := 0; i <= len(events); i++ {
		switch state := i < len(events) && strings.Contains(events[i], " state "); {
		case state && from < 0:
			from = i
		case !state && from >= 0:
			slices.SortStableFunc(events[from:i], func(a, b string) int {
				one, _, _ := strings.Cut(a, " state ")
				other, _, _ := strings.Cut(b, " state ")
				return strings.Compare(one, other)
			})
			from = -1
		}
	}
	return events
}
