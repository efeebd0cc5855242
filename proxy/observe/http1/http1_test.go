package http1_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/lastcall-proxy/lastcall/proxy/observe"
	"github.com/lastcall-proxy/lastcall/proxy/observe/http1"
	"github.com/lastcall-proxy/lastcall/proxy/observe/observetest"
	"github.com/lastcall-proxy/lastcall/proxy/observe/websocket"
)

func newObs(s observe.Sink) observe.Observer {
	return http1.New(s, http1.Options{Upgrade: func(sink observe.Sink, st observe.Stream, r *observe.Request) observe.Observer {
		if r.Kind == observe.WebSocket {
			return websocket.New(sink, st)
		}
		return nil
	}})
}

const (
	get  = "GET /a?q=1 HTTP/1.1\r\nHost: h\r\nUser-Agent: ua\r\n\r\n"
	ok   = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
	done = "done 0 by app code 0"
)

type step = observetest.Step

func TestExchanges(t *testing.T) {
	client, app := observetest.Client, observetest.App
	tests := []struct {
		name  string
		steps []step
		done  int    // exchanges completed
		last  string // the last event's suffix
	}{
		{"one", []step{client(get), app(ok)}, 1, done},
		{"kept", []step{client(get), app(ok), client(get), app(ok)}, 2, done},
		{"pipelined", []step{client(get + get + get), app(ok + ok), app(ok)}, 3, done},
		{"bare LF", []step{client("GET / HTTP/1.1\nHost: h\n\n"), app("HTTP/1.1 204 No\n\n")}, 1, done},
		{"chunked both", []step{client("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nT: v\r\n\r\n"), app("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, Chunked\r\n\r\na\r\n0123456789\r\n0\r\n\r\n"), client(get), app(ok)}, 2, done},
		{"interim", []step{client("POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"), app("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\n"), client("abc"), app(ok)}, 1, done},
		{"early answer", []step{client("POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc"), app("HTTP/1.1 413 No\r\nContent-Length: 0\r\n\r\n"), client("defghij"), client(get), app(ok)}, 2, done},
		{"HEAD", []step{client("HEAD / HTTP/1.1\r\n\r\n"), app("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n"), client(get), app(ok)}, 2, done},
		{"until close", []step{client(get), app("HTTP/1.1 200 OK\r\n\r\nanything"), observetest.EOF(observe.FromApp)}, 1, done},
		{"truncated", []step{client(get), app("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab"), observetest.EOF(observe.FromApp)}, 0, ""},
		{"conflicting lengths", []step{client("POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab")}, 0, "lost " + http1.LostFraming},
		{"length and chunked", []step{client("POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\nab")}, 0, "lost " + http1.LostFraming},
		{"head too large", []step{client(get), app(ok), client("GET / HTTP/1.1\r\nX: " + strings.Repeat("x", 65<<10))}, 1, "lost " + http1.LostHeadTooLarge},
		{"not HTTP", []step{client("PING\r\n"), app("+PONG\r\n")}, 0, "protocol 0"},
		{"h2 preface", []step{client("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")}, 0, "protocol 0"},
		{"tunnel", []step{client("CONNECT h:1 HTTP/1.1\r\n\r\n"), client("early"), app("HTTP/1.1 200 OK\r\n\r\nbytes"), client("more")}, 0, "state 2 2"},
		{"upgrade refused", []step{client("GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"), client(get), app("HTTP/1.1 400 No\r\nContent-Length: 0\r\n\r\n" + ok)}, 2, done},
		{"websocket", []step{client("GET / HTTP/1.1\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n\r\n"), client("\x81\x82abcdxy"), app("HTTP/1.1 101 Yes\r\nUpgrade: websocket\r\n\r\n\x81\x02hi"), client("\x88\x82\x00\x00\x00\x00\x03\xe8"), app("\x88\x02\x03\xe8")}, 0, "done 0 by client code 1000"},
		{"garbage answer", []step{client(get), app("garbage\r\n")}, 0, "lost " + http1.LostBadResponse},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var in [2]string
			for _, s := range tt.steps {
				in[s.Dir] += s.Data
			}
			got := observetest.Splits(t, newObs, tt.steps)
			if got.Out != in {
				t.Errorf("what left: got %q, want what came: %q", got.Out, in)
			}
			n := 0
			for _, e := range got.Events {
				if strings.HasSuffix(e, done) {
					n++
				}
			}
			if n != tt.done {
				t.Errorf("completed: got %d, want %d; events %q", n, tt.done, got.Events)
			}
			if tt.last != "" && !strings.HasSuffix(got.Events[len(got.Events)-1], tt.last) {
				t.Errorf("last event: got %q, want %q", got.Events[len(got.Events)-1], tt.last)
			}
		})
	}
}

func TestOrders(t *testing.T) {
	client, app := observetest.Client, observetest.App
	bye, late, end := observetest.Tell(observe.OrderFarewell), observetest.Tell(observe.OrderReject), observetest.Tell(observe.OrderEnd)
	const refusal = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 24\r\nRetry-After: 1\r\nConnection: close\r\n\r\nserver is shutting down\n"
	const told = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi"
	const events = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
	tests := []struct {
		name     string
		steps    []step
		toApp    string
		toClient string
		event    string
	}{
		{"farewell", []step{client(get), bye, app(ok), client(get)}, get, told, "close after"},
		{"farewell waits for the last of a pipeline", []step{client(get + get), bye, app(ok + ok)}, get + get, ok + told, "close after"},
		{"farewell never on interim answers", []step{client(get), bye, app("HTTP/1.1 100 Continue\r\n\r\n" + ok)}, get, "HTTP/1.1 100 Continue\r\n\r\n" + told, "farewell own=true"},
		{"farewell keeps other tokens", []step{client(get), bye, app("HTTP/1.1 426 No\r\nConnection: Upgrade\r\nContent-Length: 0\r\n\r\n")}, get, "HTTP/1.1 426 No\r\nConnection: close\r\nConnection: Upgrade\r\nContent-Length: 0\r\n\r\n", "close after"},
		{"farewell never on 101", []step{client("GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"), bye, app("HTTP/1.1 101 Yes\r\n\r\n")}, "GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", "HTTP/1.1 101 Yes\r\n\r\n", "protocol 4"},
		{"late request", []step{late, client(get)}, "", refusal, "s1 done 3 by client code 0"},
		{"late request waits its turn", []step{client(get), late, client(get), app(ok)}, get, ok + refusal, "close after"},
		{"late probe", []step{late, client("GET /z HTTP/1.1\r\nUser-Agent: probe\r\n\r\n"), app(ok)}, "GET /z HTTP/1.1\r\nUser-Agent: probe\r\n\r\n", ok, "s1 " + done},
		{"request under way is no late one", []step{client(get[:5]), late, client(get[5:]), app(ok)}, get, ok, "s1 " + done},
		{"events end whole", []step{client(get), app(events + "9\r\ndata: 1\n\n\r\n"), end, app("9\r\ndata: 2\n\n\r\n")}, get, events + "9\r\ndata: 1\n\n\r\n0\r\n\r\n", "s1 done 2 by client code 0"},
		{"events end at the next boundary", []step{client(get), app(events + "9\r\ndata:"), end, app(" 1\n\n\r\n9\r\ndata: 2\n\n\r\n")}, get, events + "9\r\ndata: 1\n\n\r\n0\r\n\r\n", "close after"},
		{"no end inside an event", []step{client(get), app(events + "7\r\ndata: 1\r\n"), end}, get, events + "7\r\ndata: 1\r\n", "s1 kind 3"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := observetest.Splits(t, newObs, tt.steps, "probe")
			if want := [2]string{tt.toApp, tt.toClient}; got.Out != want {
				t.Errorf("what left: got %q, want %q", got.Out, want)
			}
			if !slices.Contains(got.Events, tt.event) {
				t.Errorf("events: got %q, want one to be %q", got.Events, tt.event)
			}
		})
	}
}

func FuzzHTTP1(f *testing.F) {
	f.Add([]byte(get+get), []byte(ok+ok), uint8(3))
	f.Add([]byte("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"), []byte("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: x\n\n"), uint8(1))
	f.Add([]byte("GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\x81\x80abcd"), []byte("HTTP/1.1 101 Yes\r\n\r\n\x88\x00"), uint8(7))
	f.Fuzz(func(t *testing.T, client, app []byte, size uint8) {
		half := len(client) / 2
		steps := []step{observetest.Client(string(client[:half])), observetest.App(string(app)), observetest.Client(string(client[half:])), observetest.EOF(observe.FromClient), observetest.EOF(observe.FromApp)}
		whole := observetest.Run(t, newObs, steps, 0)
		if whole.Out != [2]string{string(client), string(app)} {
			t.Fatalf("what left differs from what came: %q", whole.Out)
		}
		cut := observetest.Run(t, newObs, steps, int(size%64)+1)
		if cut.Out != whole.Out || !slices.Equal(cut.Events, whole.Events) {
			t.Fatalf("cut into pieces of %d: got %q, want %q", int(size%64)+1, cut.Events, whole.Events)
		}
	})
}
