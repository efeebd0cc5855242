package prove

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lastcall-proxy/lastcall/bench/load"
	"github.com/lastcall-proxy/lastcall/bench/proof"
)

// loadOf turns a ledger's account into the document's form.
func loadOf(a *load.Account, start, zero time.Time) proof.Load {
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }
	out := proof.Load{
		Kind: string(a.Spec.Kind), Target: a.Spec.Target, Attempted: a.Attempted, Succeeded: a.Succeeded, Failed: a.Failed, Faults: a.Faults, Outcomes: map[string]uint64{},
		Connections: proof.Connections{Opened: a.Connections.Opened, Refused: a.Connections.Refused, Failed: a.Connections.Failed, Bytes: proof.Bytes(a.Connections.Bytes)}, Latency: proof.Latency{P50: ms(a.P50), P90: ms(a.P90), P99: ms(a.P99), Max: ms(a.Max)},
		Timeline: proof.Timeline{From: seconds(start.Sub(zero)), Slice: load.Slice.Seconds(), Open: []int{}, Begun: []int{}, Failed: []int{}},
	}
	for o, n := range a.Outcomes {
		out.Outcomes[string(o)] = n
	}
	for _, p := range a.Line {
		out.Timeline.Open, out.Timeline.Begun, out.Timeline.Failed = append(out.Timeline.Open, p.Open), append(out.Timeline.Begun, p.Begun), append(out.Timeline.Failed, p.Failed)
	}
	if !a.Spec.Kind.Long() {
		return out
	}
	s := &proof.Sessions{Opened: a.Sessions, Ended: a.Ended, Reconnected: a.Reconnected, Outcomes: map[string]uint64{}, Messages: proof.Messages(a.Messages), Away: len(a.Away), ReconnectMS: []float64{}, AwayMS: []float64{}}
	for i := range a.Entries {
		if e := &a.Entries[i]; e.Session {
			s.Outcomes[string(e.Outcome)]++
			if !e.Outcome.Good() {
				s.Cut++
			}
		}
	}
	if n := a.Outcomes[load.OK]; n > 0 {
		s.Outcomes[string(load.OK)] = n
	}
	for _, d := range a.Returns {
		s.ReconnectMS = append(s.ReconnectMS, ms(d))
	}
	for _, d := range a.Away {
		s.AwayMS = append(s.AwayMS, ms(d))
	}
	slices.Sort(s.ReconnectMS)
	slices.Sort(s.AwayMS)
	out.Sessions = s
	return out
}

// judge compares with the limits: of several runs the worst counts.
func judge(p *proof.Proof, l *Limits) {
	var failed, cut, lost, unex float64
	var back p99
	for i := range p.Runs {
		r := &p.Runs[i]
		var runFailed, runCut, runLost float64
		var returns, away []float64
		for k := range r.Loads {
			ld := &r.Loads[k]
			runFailed += float64(ld.Failed + ld.Faults)
			if ld.Sessions == nil {
				continue
			}
			// What has a limit of its own is judged by that one alone.
			if l.CutStreams >= 0 {
				runFailed -= float64(ld.Sessions.Cut)
			}
			if l.LostMessages >= 0 {
				runFailed -= float64(ld.Outcomes[string(load.MessageLost)])
			}
			runCut += float64(ld.Sessions.Cut)
			runLost += float64(ld.Sessions.Messages.Lost)
			returns, away = append(returns, ld.Sessions.ReconnectMS...), append(away, ld.Sessions.AwayMS...)
		}
		failed, cut, lost, unex = max(failed, runFailed), max(cut, runCut), max(lost, runLost), max(unex, float64(r.Unexplained)+float64(r.Omitted))
		back = back.worse(p99Of(returns, away))
	}
	add := func(name string, limit, actual float64) {
		p.Thresholds = append(p.Thresholds, proof.Threshold{Name: name, Limit: limit, Actual: actual, OK: actual <= limit})
	}
	add("max_failed_requests", float64(l.FailedRequests), failed)
	add("max_unexplained", float64(l.Unexplained), unex)
	if l.CutStreams >= 0 {
		add("max_cut_streams", float64(l.CutStreams), cut)
	}
	if l.LostMessages >= 0 {
		add("max_lost_messages", float64(l.LostMessages), lost)
	}
	if l.ReconnectP99 >= 0 {
		add("max_reconnect_p99", l.ReconnectP99.Seconds(), back.seconds)
		t := &p.Thresholds[len(p.Thresholds)-1]
		t.AtLeast, t.OK = back.atLeast, t.OK && !back.atLeast
	}
	if p.Verdict == proof.NoVerdict {
		return
	}
	var over []string
	for _, t := range p.Thresholds {
		switch {
		case t.AtLeast:
			over = append(over, fmt.Sprintf("%s: %d of %d clients were not back when the run ended", t.Name, back.away, back.n))
		case !t.OK:
			over = append(over, fmt.Sprintf("%s %g, at most %g", t.Name, t.Actual, t.Limit))
		}
	}
	if len(over) > 0 {
		p.Verdict, p.Reason = proof.NotProven, strings.Join(over, "; ")
		return
	}
	var total uint64
	sessions, away, running := 0, 0, false
	for i := range p.Runs {
		if r := &p.Runs[i]; r.Unfinished != "" {
			p.Verdict = proof.NoVerdict
			what := "the drain had only come to its " + r.Unfinished + " phase: what it still held was not seen to end"
			if r.Unfinished == "command" {
				what = "--exec's command still ran"
			}
			p.Reason = fmt.Sprintf("every limit was kept, but %.1f s after the trigger %s; --for must be longer", r.End, what)
			return
		}
		running = running || p.Runs[i].Running
		for k := range p.Runs[i].Loads {
			total += p.Runs[i].Loads[k].Attempted
			if s := p.Runs[i].Loads[k].Sessions; s != nil {
				sessions += s.Opened
				away += s.Away
			}
		}
	}
	p.Verdict = proof.Proven
	p.Reason = fmt.Sprintf("%d attempts, %d sessions among them, within every limit", total, sessions)
	if away > 0 {
		p.Reason += fmt.Sprintf("; %d clients were not back when it ended, which has no limit here", away)
	}
	if running {
		p.Reason += "; the target still ran when it ended"
	}
}
