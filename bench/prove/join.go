package prove

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/lastcall-proxy/lastcall/bench/load"
	"github.com/lastcall-proxy/lastcall/bench/proof"
)

// Who a failure is attributed to, beside the parties that a fate names.
const (
	byServer    = "server"      // the far side's doing, seen on the wire; no sidecar says more
	byTarget    = "target"      // nobody listened
	unexplained = "unexplained" // that is a finding of its own
)

// slack is how far a client's and a sidecar's clock readings of one event may lie apart: both are on the same machine, but
// each is read when its process gets to run.
const slack = 500 * time.Millisecond

// batch is how much later than it came an end may be stamped: a loop reads its clock once per batch.
const batch = 20 * time.Millisecond

func seconds(d time.Duration) float64 { return math.Round(d.Seconds()*1e4) / 1e4 }

// joiner finds the fate behind a failure.
type joiner struct {
	facts    map[string][]*fact // by the client's address
	turned   []*fact            // connections that were turned away, in order: their clients may not know their own address
	claimed  map[*fact]bool     // of those, the ones that a failure has
	sidecars []*watched
}

func newJoiner(sidecars []*watched) *joiner {
	j := &joiner{facts: map[string][]*fact{}, claimed: map[*fact]bool{}, sidecars: sidecars}
	for _, s := range sidecars {
		s.mu.Lock()
		for i := range s.facts {
			f := &s.facts[i]
			j.facts[f.client] = append(j.facts[f.client], f)
			if !f.stream && (f.fate == "unreachable" || f.fate == "rejected") {
				j.turned = append(j.turned, f)
			}
		}
		s.mu.Unlock()
	}
	slices.SortStableFunc(j.turned, func(a, b *fact) int { return a.opened.Compare(b.opened) })
	return j
}

// claim finds a connection that was turned away when the client's was, and that is no other client's.
func (j *joiner) claim(e *load.Entry) *fact {
	i, _ := slices.BinarySearchFunc(j.turned, e.Began.Add(-slack), func(f *fact, at time.Time) int { return f.opened.Compare(at) })
	for ; i < len(j.turned) && !j.turned[i].opened.After(e.At.Add(slack)); i++ {
		if f := j.turned[i]; !j.claimed[f] {
			j.claimed[f] = true
			return f
		}
	}
	return nil
}

// died says whether a sidecar went without a word when the client saw its failure: a process that was killed leaves no record.
func (j *joiner) died(e *load.Entry) bool {
	for _, s := range j.sidecars {
		s.mu.Lock()
		gone, said := s.gone, s.closed()
		s.mu.Unlock()
		if !gone.IsZero() && said.Equal(gone) && e.At.After(gone.Add(-slack)) && e.At.Before(gone.Add(slack)) {
			return true
		}
	}
	return false
}

// broken says whether a request's connection ended under it.
func broken(e *load.Entry) bool {
	return e.Outcome == load.Closed || e.Outcome == load.Reset || e.Outcome == load.Truncated
}

// find is the record that lived when the client saw its failure: the end that lies nearest, a stream's before its
// connection's, one with a cause before a completed one.
func (j *joiner) find(e *load.Entry) *fact {
	var best *fact
	rank := func(f *fact) (r int) {
		if f.fate != "completed" && f.fate != "drained" {
			r += 2
		}
		if !f.ended.Before(e.Began.Add(-batch)) { // a clock that is off is the last resort
			r += 4
		}
		if f.stream {
			r++
		}
		return r
	}
	apart := func(f *fact) time.Duration { return f.ended.Sub(e.At).Abs() }
	for _, f := range j.facts[e.Local] {
		if e.At.Before(f.opened.Add(-slack)) || e.Began.After(f.ended.Add(slack)) {
			continue
		}
		if e.Outcome == load.StreamRefused && f.stream && f.fate == "completed" {
			continue // not this one: a stream above a GOAWAY's last id may never have been sent; its connection tells whose GOAWAY
		}
		if (broken(e) || e.Outcome == load.Timeout) && !e.Session && f.stream && f.fate == "completed" {
			continue // nor this: it is an earlier request's, which had its answer
		}
		if f.fate == stillOpen && e.Outcome != load.Timeout {
			continue
		}
		if best == nil || rank(f) > rank(best) || rank(f) == rank(best) && apart(f) < apart(best) {
			best = f
		}
	}
	return best
}

// unaccepted says whether a connection without a record may be one that no sidecar has ever had: the kernel resets what comes
// to a listener's queue between the last accept and the close.
func (j *joiner) unaccepted(e *load.Entry) bool {
	for _, s := range j.sidecars {
		s.mu.Lock()
		closed, whole := s.closed(), s.dropped == 0
		s.mu.Unlock()
		if whole && !closed.IsZero() && e.Began.After(closed.Add(-slack)) && e.At.Before(closed.Add(slack)) {
			return true
		}
	}
	return false
}

// attribute says whose doing a failure was.
func (j *joiner) attribute(e *load.Entry) (party string, f *fact) {
	switch e.Outcome {
	case load.Refused:
		if e.Wire == load.TurnedAway {
			if f := j.claim(e); f != nil {
				return f.by, f
			}
		}
		return byTarget, nil
	case load.Unreachable, load.Overflow:
		return unexplained, nil
	case load.MessageLost, load.MessageTwice, load.MessageLate, load.Wrong: // inside what is passed on as it came
		if f := j.find(e); f != nil {
			return "app", f
		}
		return byServer, nil
	default:
	}
	if len(j.sidecars) == 0 {
		if e.Outcome == load.Timeout {
			return unexplained, nil
		}
		return byServer, nil
	}
	f = j.find(e)
	switch {
	case f == nil && (e.Outcome == load.Reset && j.unaccepted(e) || broken(e) && j.died(e)):
		return byTarget, nil
	case f == nil:
		return unexplained, nil
	case e.Outcome == load.Timeout && (f.waiting == "app" || f.by == "client" && f.waiting != "client"):
		return "app", f // the client has given up; who let it wait is what matters
	case e.Outcome == load.Status || e.Outcome == load.GRPCStatus:
		if f.fate == "completed" {
			return "app", f // an answer like any other
		}
	case f.fate == "completed" && f.by == "client" && (e.Outcome == load.Closed || e.Outcome == load.Reset || e.Outcome == load.Truncated):
		return unexplained, f // the sidecar has seen nothing wrong, the client has
	}
	if e.Outcome == load.StreamRefused && f.fate == "drained" {
		return "lastcall", f // the client has left as it was told to, and took a stream back
	}
	if f.by == "unknown" {
		return unexplained, f
	}
	return f.by, f
}

// failures are a ledger's, each with its phase and its cause.
func failures(a *load.Account, j *joiner, zero time.Time, phases []proof.Phase) (out []proof.Failure) {
	for i := range a.Entries {
		e := &a.Entries[i]
		if e.Outcome.Good() {
			continue
		}
		v := proof.Failure{At: seconds(e.At.Sub(zero)), Kind: string(a.Spec.Kind), Outcome: string(e.Outcome), Wire: e.Wire, Local: e.Local, Session: e.Session}
		v.Phase = phaseOf(phases, v.At)
		if e.Local != "" {
			b := proof.Bytes(e.Bytes)
			v.Bytes = &b
		}
		var f *fact
		if v.Attributed, f = j.attribute(e); f != nil {
			v.FateID = f.id
			v.Fate = strings.TrimSpace(f.fate + " by " + f.by + " " + f.how)
			if f.reason != "" {
				v.Fate += ": " + f.reason
			}
		}
		out = append(out, v)
	}
	return out
}

func phaseOf(phases []proof.Phase, at float64) string {
	for i := len(phases) - 1; i >= 0; i-- {
		if at >= phases[i].From {
			return phases[i].Name
		}
	}
	return "before"
}

// unfinished is the phase in which a drain was at that time if it had still to tell its streams to end; "": it had come further,
// or there was none.
func unfinished(sidecars []*watched, at time.Time) string {
	for _, s := range sidecars {
		s.mu.Lock()
		phase, gone := "", s.gone
		for _, p := range s.phases {
			if !p.at.After(at) {
				phase = p.name
			}
		}
		s.mu.Unlock()
		if (phase == "lameduck" || phase == "draining") && (gone.IsZero() || gone.After(at)) {
			return phase
		}
	}
	return ""
}

// phasesOf is the run's course: the first sidecar's phases, or, without one, what was seen of the target.
func phasesOf(sidecars []*watched, from, end float64, zero time.Time, exited *float64) []proof.Phase {
	out := []proof.Phase{{Name: "before", From: from, To: 0}}
	add := func(name string, at float64) {
		if at >= end {
			return
		}
		out[len(out)-1].To = at
		out = append(out, proof.Phase{Name: name, From: at, To: end})
	}
	known := false
	for _, s := range sidecars {
		s.mu.Lock()
		phases, gone := slices.Clone(s.phases), s.gone
		s.mu.Unlock()
		if len(phases) == 0 {
			continue
		}
		known = true
		for _, p := range phases {
			name := p.name
			switch name {
			case "done":
				name = "after"
			case "serving": // cancelled
				name = "before"
			}
			add(name, max(0, seconds(p.at.Sub(zero))))
		}
		if last := phases[len(phases)-1].name; last != "done" && !gone.IsZero() {
			add("after", max(0, seconds(gone.Sub(zero))))
		}
		break
	}
	if !known {
		add("terminating", 0)
		if exited != nil {
			add("after", *exited)
		}
	}
	out[len(out)-1].To = end
	return out
}
