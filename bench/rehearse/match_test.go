package rehearse

import (
	"testing"
	"time"
)

// Clients of one habit that look the same have their tries shared out so that each shows it.
func TestTriesOfClientsThatLookTheSame(t *testing.T) {
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	const n = 20
	for _, tt := range []struct {
		name string
		next func(try, i int) int // when client i tries, in ms
		want Class
	}{
		{"a fixed beat", func(try, i int) int { return 300*try + i*7 }, Naive},
		{"at once", func(try, i int) int { return 20*try + i }, Naive},
		{"doubling", func(try, i int) int { return 100<<try + i*5 }, Backoff},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := Defaults()
			p.Mode = "refuse-new"
			var clients []*client
			var seen []record
			for i := range n {
				from := record{id: "old", conn: string(rune('a' + i)), kind: "websocket", stream: true, normal: true, ip: "127.0.0.1", path: "/ws"}
				clients = append(clients, &client{key: p.key(&from), kind: "websocket", from: from, taken: start, left: at(1)})
				for try := range 7 {
					r := from
					r.conn, r.opened, r.fate, r.status = "new", at(2+tt.next(try, i)), "rejected", "503"
					if try == 6 {
						r.fate, r.status = "", "101"
					}
					seen = append(seen, r)
				}
			}
			if !p.match(clients, seen) {
				t.Error("nobody said that they look the same")
			}
			for i, c := range clients {
				if c.back == nil || len(c.attempts) != 7 || c.class() != tt.want {
					t.Errorf("client %d: %s, back %v, %d tries", i, c.class(), c.back != nil, len(c.attempts))
				}
			}
		})
	}
}

// What a client goes on with on a connection that it had already is no return after a GOAWAY.
func TestOlderConnectionsAreNoReturn(t *testing.T) {
	start := time.Now()
	p := Defaults()
	p.Mode = "goaway"
	from := record{id: "c1.1", conn: "c1", kind: "grpc", stream: true, normal: true, identity: "g", opened: start.Add(-time.Minute)}
	for _, tt := range []struct {
		dialled time.Time
		want    bool
	}{{start.Add(-time.Second), false}, {start.Add(time.Millisecond), true}, {time.Time{}, true}} {
		c := &client{key: p.key(&from), kind: "grpc", from: from, taken: start}
		r := record{id: "c2.9", conn: "c2", kind: "http2", stream: true, normal: true, identity: "g", opened: start.Add(10 * time.Millisecond), dialled: tt.dialled, status: "200"}
		p.match([]*client{c}, []record{r})
		if (c.back != nil) != tt.want {
			t.Errorf("dialled %v: back %v", tt.dialled.Sub(start), c.back != nil)
		}
	}
}

// A limit on the time to be back is not met by those who are not.
func TestLimitCountsThoseWhoAreAway(t *testing.T) {
	for _, tt := range []struct {
		name        string
		back, never int
		actual      float64
		atLeast, ok bool
	}{
		{"all back", 100, 0, 10, false, true},
		{"one in a thousand away", 999, 1, 10, false, true},
		{"one in ten away", 9, 1, 5000, true, false},
		{"nobody back", 0, 3, 5000, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := Result{All: Group{Outcomes: map[string]int{"returned": tt.back, "never": tt.never}}, Plan: Told{WatchS: 5}}
			for range tt.back {
				r.Clients = append(r.Clients, Client{Reconnect: new(10.0)})
			}
			r.judge(Limits{Never: -1, ReconnectP99: time.Minute, Bunching: -1})
			if j := r.Limits[0]; j.Actual != tt.actual || j.AtLeast != tt.atLeast || j.OK != tt.ok || (r.Verdict == "met") != tt.ok {
				t.Errorf("%s, %+v", r.Verdict, j)
			}
		})
	}
}
