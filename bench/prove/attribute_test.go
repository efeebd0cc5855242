package prove

import (
	"testing"
	"time"

	"github.com/lastcall-proxy/lastcall/bench/load"
)

// Whose doing a failure was, from what a sidecar tells of the client's address at that time.
func TestAttribute(t *testing.T) {
	now := time.Now()
	at := func(ms int) time.Time { return now.Add(time.Duration(ms) * time.Millisecond) }
	const client = "127.0.0.1:1"
	earlier := fact{id: "c1.1", client: client, fate: "completed", by: "app", how: "protocol", opened: at(-100), ended: at(-90), stream: true}
	closed := fact{id: "c1", client: client, fate: "completed", by: "app", how: "fin", opened: at(-200), ended: at(0)}
	dead := fact{id: "c2", client: "127.0.0.1:2", fate: "unreachable", by: "app", opened: at(-1), ended: at(0)}
	for _, tt := range []struct {
		name    string
		entry   load.Entry
		sidecar *watched
		want    string
		fate    string
	}{
		{"an earlier request is no cause", load.Entry{Outcome: load.Reset, Local: client}, &watched{facts: []fact{earlier}}, unexplained, ""},
		{"the sidecar was killed", load.Entry{Outcome: load.Reset, Local: client}, &watched{facts: []fact{earlier}, gone: at(1)}, byTarget, ""},
		{"a session of one that was killed", load.Entry{Outcome: load.Closed, Local: client, Session: true}, &watched{gone: at(1)}, byTarget, ""},
		{"it went long before", load.Entry{Outcome: load.Reset, Local: client}, &watched{gone: at(-60_000)}, unexplained, ""},
		{"it drained", load.Entry{Outcome: load.Closed, Local: client}, &watched{phases: []phaseAt{{"done", at(0)}}, gone: at(1)}, unexplained, ""},
		{"a request crosses the app's FIN", load.Entry{Outcome: load.Closed, Local: client}, &watched{facts: []fact{earlier, closed}}, "app", "c1"},
		{"a session that the app ended", load.Entry{Outcome: load.Closed, Local: client, Session: true}, &watched{facts: []fact{{id: "c1.1", client: client, fate: "completed", by: "app", opened: at(-100), ended: at(0), stream: true}}}, "app", "c1.1"},
		{"turned away, and the app was not there", load.Entry{Outcome: load.Refused, Wire: load.TurnedAway}, &watched{facts: []fact{dead}}, "app", "c2"},
		{"turned away, and nobody knows", load.Entry{Outcome: load.Refused, Wire: load.TurnedAway}, &watched{}, byTarget, ""},
		{"nobody listens", load.Entry{Outcome: load.Refused, Wire: "RST to SYN"}, &watched{facts: []fact{dead}}, byTarget, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := tt.entry
			e.Began, e.At = at(-2), at(0)
			j := newJoiner([]*watched{tt.sidecar})
			got, f := j.attribute(&e)
			id := ""
			if f != nil {
				id = f.id
			}
			if got != tt.want || id != tt.fate {
				t.Errorf("got %s by %q, want %s by %q", got, id, tt.want, tt.fate)
			}
			if tt.fate == "c2" { // one record explains one failure
				if again, f := j.attribute(&e); again != byTarget || f != nil {
					t.Errorf("again: %s, %+v", again, f)
				}
			}
		})
	}
}
