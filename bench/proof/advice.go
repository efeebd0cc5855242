package proof

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// tally is what went wrong after the trigger, of one outcome.
type tally struct {
	n     int
	last  float64
	kinds map[string]bool
}

func (t *tally) add(f *Failure) {
	if t.kinds == nil {
		t.kinds = map[string]bool{}
	}
	t.n++
	t.last = max(t.last, f.At)
	t.kinds[f.Kind] = true
}

func (t *tally) of() string { return strings.Join(slices.Sorted(maps.Keys(t.kinds)), ", ") }

// Advise says what to change, at the server or in its clients, so that what went wrong after the trigger would not. What the
// sidecars advise on grace period and lameduck stands with them.
func (r *Run) Advise() []string {
	out := []string{}
	say := func(t *tally, who, format string, args ...any) {
		if t.n > 0 {
			out = append(out, fmt.Sprintf(who+": "+format, args...)+" ("+t.of()+")")
		}
	}
	// Of the sessions' clients those that fail to open one come back by themselves: they are told of by Away.
	requests, sessions := r.tallies()
	if t := requests["refused"]; t != nil && t.last > r.End-1 {
		say(t, "server", "%d requests found nobody listening, up to the end: have another ready before this one goes", t.n)
	} else if t != nil {
		say(t, "server", "%d requests found nobody listening, the last %.1f s after the trigger: serve on for at least that long (lameduck, preStop)", t.n, t.last)
	}
	for _, a := range []struct{ outcome, who, text string }{
		{"status", "client", "%d requests were turned away by a status: try those elsewhere that were answered 503 (RFC 9110 section 15.6.4), or serve on for longer before refusing"},
		{"stream_refused", "client", "%d requests were refused before anything was done with them: send them again, which is always safe (RFC 9113 section 8.7)"},
		{"grpc_status", "client", "%d calls ended with a gRPC status: give methods that may be repeated a retryPolicy for UNAVAILABLE"},
		{"closed", "client", "%d requests met the end of their connection before an answer: send again what may be repeated (RFC 9110 section 9.2.2); a server that says Connection: close before it closes avoids it"},
		{"reset", "client", "%d requests were reset before an answer was whole: send again what may be repeated (RFC 9110 section 9.2.2); a server that drains avoids it"},
		{"stream_reset", "server", "%d streams were reset in flight: give them a longer grace period"},
		{"truncated", "server", "%d answers were broken off: give them a longer grace period"},
		{"timeout", "client", "%d requests had no answer and no end: give them a deadline, and idle connections a ping (HTTP/2 PING, gRPC keepalive, TCP_USER_TIMEOUT)"},
	} {
		if t := requests[a.outcome]; t != nil {
			say(t, a.who, a.text, t.n)
		}
	}
	var cut, silent tally
	for o, t := range sessions {
		into := &cut
		if o == "timeout" {
			into = &silent
		}
		into.n += t.n
		if into.kinds == nil {
			into.kinds = map[string]bool{}
		}
		maps.Copy(into.kinds, t.kinds)
	}
	say(&cut, "server", "%d sessions were cut without a goodbye: end them by their protocol's (WebSocket Close 1001 or 1012, gRPC trailers, the end of an event stream), so that clients know at once and come back", cut.n)
	say(&silent, "client", "%d sessions fell silent and were not ended: give them a ping with a deadline (WebSocket ping, gRPC keepalive, TCP_USER_TIMEOUT)", silent.n)
	for i := range r.Loads {
		l := &r.Loads[i]
		if l.Sessions == nil {
			continue
		}
		own := &tally{kinds: map[string]bool{l.Kind: true}, n: 1}
		s, m := l.Sessions, &l.Sessions.Messages
		if s.Away > 0 {
			say(own, "client", "%d clients were not back %.1f s after the trigger: have another ready that they find, and let them try on", s.Away, r.End)
		}
		if m.Unanswered > 0 {
			say(own, "client", "%d messages crossed a goodbye: number them, and send again in the next session those that had no answer", m.Unanswered)
		}
		if m.Lost > 0 {
			say(own, "server", "%d messages were lost inside sessions: answer what was taken before saying goodbye", m.Lost)
		}
	}
	return out
}

// tallies counts what failed after the trigger by outcome: requests, and sessions that had been open.
func (r *Run) tallies() (requests, sessions map[string]*tally) {
	long := map[string]bool{}
	for i := range r.Loads {
		long[r.Loads[i].Kind] = r.Loads[i].Sessions != nil
	}
	requests, sessions = map[string]*tally{}, map[string]*tally{}
	for i := range r.Failures {
		f := &r.Failures[i]
		if f.At < 0 {
			continue
		}
		into := requests
		switch {
		case f.Session:
			into = sessions
		case long[f.Kind]:
			continue
		}
		if into[f.Outcome] == nil {
			into[f.Outcome] = &tally{}
		}
		into[f.Outcome].add(f)
	}
	return requests, sessions
}
