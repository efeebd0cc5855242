package proof_test

import (
	"strings"
	"testing"

	"github.com/lastcall-proxy/lastcall/bench/proof"
)

// Each thing that can go wrong for a client has a piece of advice that names how often and to whom; what was before the
// trigger, and what was nobody's fault, has none.
func TestAdvice(t *testing.T) {
	failure := func(kind, outcome string, at float64, session bool) proof.Failure {
		return proof.Failure{Kind: kind, Outcome: outcome, At: at, Session: session}
	}
	loads := []proof.Load{{Kind: "http1"}, {Kind: "http2"}, {Kind: "websocket", Sessions: &proof.Sessions{}}, {Kind: "tcp", Sessions: &proof.Sessions{}}}
	for _, tt := range []struct {
		name     string
		failures []proof.Failure
		change   func(*proof.Run)
		want     []string // the beginning of each piece
	}{
		{"nothing", nil, nil, nil},
		{"before the trigger", []proof.Failure{failure("http1", "reset", -1, false)}, nil, nil},
		{"a session's client tries in vain", []proof.Failure{failure("websocket", "refused", 3, false)}, nil, nil},
		{"a gap", []proof.Failure{failure("http1", "refused", 2, false), failure("http2", "refused", 4.25, false)}, nil, []string{"server: 2 requests found nobody listening, the last 4.2 s after"}},
		{"no successor", []proof.Failure{failure("http1", "refused", 9.5, false)}, nil, []string{"server: 1 requests found nobody listening, up to the end"}},
		{"requests", []proof.Failure{failure("http1", "status", 1, false), failure("http2", "stream_refused", 1, false), failure("http1", "closed", 1, false), failure("http1", "truncated", 1, false), failure("http1", "timeout", 1, false)}, nil,
			[]string{"client: 1 requests were turned away by a status", "client: 1 requests were refused before", "client: 1 requests met the end", "server: 1 answers were broken off", "client: 1 requests had no answer"}},
		{"sessions", []proof.Failure{failure("websocket", "closed", 1, true), failure("tcp", "reset", 1, true), failure("tcp", "timeout", 1, true)}, nil,
			[]string{"server: 2 sessions were cut", "client: 1 sessions fell silent"}},
		{"messages", nil, func(r *proof.Run) {
			r.Loads[2].Sessions = &proof.Sessions{Away: 3, Messages: proof.Messages{Unanswered: 2, Lost: 1}}
		}, []string{"client: 3 clients were not back", "client: 2 messages crossed a goodbye", "server: 1 messages were lost"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := proof.Run{Loads: append([]proof.Load(nil), loads...), Failures: tt.failures, End: 10}
			if tt.change != nil {
				tt.change(&r)
			}
			got := r.Advise()
			for i, a := range got {
				if i >= len(tt.want) || !strings.HasPrefix(a, tt.want[i]) {
					t.Errorf("%q, want %q", got, tt.want)
					break
				}
			}
			if len(got) != len(tt.want) {
				t.Errorf("%d pieces, want %d: %q", len(got), len(tt.want), got)
			}
		})
	}
}
