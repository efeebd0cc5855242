package http1_test

import (
	"strings"
	"testing"

	"github.com/lastcall-proxy/lastcall/proxy/observe"
	"github.com/lastcall-proxy/lastcall/proxy/observe/http1"
	"github.com/lastcall-proxy/lastcall/proxy/observe/observetest"
)

const forwarded = "X-Forwarded-For: 192.0.2.7\r\n"

func TestForwarded(t *testing.T) {
	forwards := func(s observe.Sink) observe.Observer {
		return http1.New(s, http1.Options{Forwarded: []byte(forwarded)})
	}
	client, app := observetest.Client, observetest.App
	with := func(head string) string { return strings.TrimSuffix(head, "\r\n") + forwarded + "\r\n" }
	chain := "GET / HTTP/1.1\r\nX-Forwarded-For: 10.0.0.1\r\n\r\n"
	post := "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
	body := "3\r\nabc\r\n0\r\nT: v\r\n\r\n"
	tests := []struct {
		name  string
		steps []step
		want  string
	}{
		{"one", []step{client(get), app(ok)}, with(get)},
		{"behind what the client said", []step{client(chain), app(ok)}, with(chain)},
		{"pipelined", []step{client(get + chain), app(ok + ok)}, with(get) + with(chain)},
		{"not into trailers", []step{client(post + body), app(ok)}, with(post) + body},
		{"bare LF", []step{client("GET / HTTP/1.1\nHost: h\n\n"), app(ok)}, "GET / HTTP/1.1\nHost: h\n" + forwarded + "\n"},
		{"a CR that ends nothing", []step{client("GET / HTTP/1.1\r\n\rX: y\r\n\r\n")}, "GET / HTTP/1.1\r\n\rX: y\r\n" + forwarded + "\r\n"},
		{"FIN behind a CR", []step{client("GET / HTTP/1.1\r\n\r"), observetest.EOF(observe.FromClient)}, "GET / HTTP/1.1\r\n\r"},
		{"lost track behind a CR", []step{client("GET / HTTP/1.1\r\n\r"), app("HTTP/1.1 what\r\n"), client("\nx")}, "GET / HTTP/1.1\r\n\r\nx"},
		{"not HTTP", []step{client("HELO x\r\n\r\n")}, "HELO x\r\n\r\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := observetest.Splits(t, forwards, tt.steps).Out[0]; got != tt.want {
				t.Errorf("to the app: got %q, want %q", got, tt.want)
			}
		})
	}
}
