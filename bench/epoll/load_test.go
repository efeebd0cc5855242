//go:build linux

package epoll

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func dialed(t *testing.T, addr string, conns int) *Session {
	t.Helper()
	s, err := Dial(t.Context(), addr, "/", conns)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func TestClosedCountsWhatTheServerAnswered(t *testing.T) {
	var served atomic.Int64
	addr := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		served.Add(1)
		_, _ = io.WriteString(w, strings.Repeat("x", 1000))
	})
	s := dialed(t, addr, 7)
	r, err := s.Closed(t.Context(), 100*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := int64(r.Requests)+7, served.Load(); got != want || r.Errors != 0 {
		t.Errorf("counted %d requests (7 of them while dialing) and %d errors, the server answered %d", got, r.Errors, want)
	}
	if r.Bytes < int64(r.Requests)*1000 {
		t.Errorf("got %d bytes in %d answers of more than 1000", r.Bytes, r.Requests)
	}
}

func TestOpenKeepsTheRateAndCountsWaiting(t *testing.T) {
	const stall = 300 * time.Millisecond
	var n atomic.Int64
	addr := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1) == 20 {
			select { // one answer is late: what is due meanwhile waits, and says so
			case <-time.After(stall):
			case <-r.Context().Done():
			}
		}
		_, _ = io.WriteString(w, "ok")
	})
	s := dialed(t, addr, 1)
	r, err := s.Open(t.Context(), 200, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if r.Requests < 120 || r.Requests > 290 || len(r.Latency) != r.Requests {
		t.Errorf("got %d requests with %d latencies, want about 200", r.Requests, len(r.Latency))
	}
	// A generator that waits for the answer before it counts time would see a single late one.
	late := 0
	for _, l := range r.Latency {
		if l > stall/3 {
			late++
		}
	}
	if late < 15 {
		t.Errorf("%d requests waited for more than %v, want about 40: those due during the stall of %v", late, stall/3, stall)
	}
}

func TestShortOpensAConnectionEach(t *testing.T) {
	var opened atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }))
	handler := s.Config.Handler
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { opened.Add(1); handler.ServeHTTP(w, r) })
	s.Start()
	t.Cleanup(s.Close)
	r, err := Short(t.Context(), s.Listener.Addr().String(), "/", 3, 50*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if r.Requests == 0 || r.Errors != 0 || int64(r.Requests) != opened.Load() {
		t.Errorf("got %d requests and %d errors, the server saw %d", r.Requests, r.Errors, opened.Load())
	}
}

func TestFailuresAreErrors(t *testing.T) {
	var n atomic.Int64
	addr := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if n.Add(1) > 10 {
			w.WriteHeader(http.StatusBadGateway)
		}
	})
	s := dialed(t, addr, 2)
	r, err := s.Closed(t.Context(), 50*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if r.Requests != 8 || r.Errors != 2 {
		t.Errorf("got %d requests and %d errors, want 8 and one per connection", r.Requests, r.Errors)
	}
	if _, err := s.Closed(t.Context(), time.Millisecond); err == nil {
		t.Error("a session without connections succeeded")
	}
	if _, err := Dial(t.Context(), addr, "/", 1); err == nil || !strings.Contains(err.Error(), "502") {
		t.Errorf("got %v, want the status", err)
	}
}

func TestAnswerAtEverySplit(t *testing.T) {
	const stream = "HTTP/1.1 200 OK\r\nContent-Type: a\r\ncontent-LENGTH:  5\r\n\r\nhello"
	for i := range len(stream) {
		for j := i; j < len(stream); j++ {
			var a answer
			for again := range 2 {
				for k, part := range []string{stream[:i], stream[i:j], stream[j:]} {
					whole, err := a.feed([]byte(part))
					if err != nil || whole != (k == 2) {
						t.Fatalf("split at %d, %d, answer %d, part %d: got %v, %v", i, j, again, k, whole, err)
					}
				}
			}
		}
	}
}

func TestAnswerRefuses(t *testing.T) {
	for name, in := range map[string]string{
		"status":        "HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n",
		"no length":     "HTTP/1.1 200 OK\r\n\r\n",
		"bad length":    "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
		"minus":         "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
		"too long":      "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab",
		"endless head":  "HTTP/1.1 200 OK\r\nA: " + strings.Repeat("a", maxHead),
		"not HTTP":      "SSH-2.0-x\r\n\r\n",
		"empty answers": "\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			var a answer
			if whole, err := a.feed([]byte(in)); err == nil {
				t.Errorf("%s: got %v, want an error", fmt.Sprintf("%.40q", in), whole)
			}
		})
	}
}
