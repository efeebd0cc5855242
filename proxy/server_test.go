package proxy_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/zap"

	"github.com/lastcall-proxy/lastcall/proxy"
	"github.com/lastcall-proxy/lastcall/proxy/config"
	"github.com/lastcall-proxy/lastcall/tracker"
	"github.com/lastcall-proxy/lastcall/tracker/trackertest"
)

// world is an app, a proxy in front of it and the proxy's registry, whose books are checked at the end.
type world struct {
	reg  *tracker.Registry
	srv  *proxy.Server
	addr string
	app  net.Listener
}

func newWorld(t *testing.T, change ...func(*config.Config)) *world {
	t.Helper()
	app, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	const loops = 2
	reg := trackertest.New(t, tracker.Config{Shards: loops})
	set := &config.Config{
		Inbound: []config.Listener{{Name: "web", Listen: "127.0.0.1:0", App: app.Addr().String()}},
		Probes:  config.DefaultProbes(), Scrapers: config.DefaultScrapers(),
	}
	for _, f := range change {
		f(set)
	}
	srv, err := proxy.New(proxy.Config{Registry: reg, Loops: loops, Logger: zap.NewNop(), Settings: set})
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Listen(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { srv.Close(); _ = app.Close() })
	return &world{reg: reg, srv: srv, addr: srv.Addrs()[0], app: app}
}

func (w *world) serve(t *testing.T, h http.Handler) {
	t.Helper()
	s := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = s.Serve(w.app) }()
	t.Cleanup(func() { _ = s.Close() })
}

func (w *world) dial(t *testing.T) (*net.TCPConn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("tcp", w.addr)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	t.Cleanup(func() { _ = c.Close() })
	tc, _ := c.(*net.TCPConn)
	return tc, bufio.NewReader(c)
}

func ask(t *testing.T, c net.Conn, path string) {
	t.Helper()
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: h\r\n\r\n", path); err != nil {
		t.Fatal(err)
	}
}

func answer(t *testing.T, r *bufio.Reader) (*http.Response, string) {
	t.Helper()
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(body)
}

func (w *world) ids(t *testing.T) []uint64 {
	t.Helper()
	var ids []uint64
	for id := range uint64(100) {
		if c, _, ok := w.reg.Get(id); ok && c.Fate == tracker.FateOpen {
			ids = append(ids, id)
		}
	}
	return ids
}

func hello(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }

func TestExchangeAndClientFIN(t *testing.T) {
	w := newWorld(t)
	w.serve(t, http.HandlerFunc(hello))
	c, r := w.dial(t)
	for range 3 {
		ask(t, c, "/x?secret=1")
		if res, body := answer(t, r); res.StatusCode != 200 || body != "hello" {
			t.Fatalf("got %d %q, want 200 %q", res.StatusCode, body, "hello")
		}
	}
	_ = c.Close()
	trackertest.WaitFor(t, w.reg, trackertest.Ended(tracker.WhatConnection, 1))
	trackertest.WantFate(t, w.reg, tracker.WhatStream, tracker.KindHTTP1, tracker.Completed, tracker.ByApp, 3)
	trackertest.WantFate(t, w.reg, tracker.WhatConnection, tracker.KindHTTP1, tracker.Completed, tracker.ByClient, 1)
}

func TestWhoBrokeIt(t *testing.T) {
	tests := []struct {
		name string
		app  func(c *net.TCPConn)
		cli  func(c *net.TCPConn)
		fate tracker.Fate
		by   tracker.Party
		how  tracker.How
	}{
		{"client resets", func(*net.TCPConn) {}, func(c *net.TCPConn) { _ = c.SetLinger(0); _ = c.Close() }, tracker.Aborted, tracker.ByClient, tracker.HowRST},
		{"app resets", func(c *net.TCPConn) { _ = c.SetLinger(0); _ = c.Close() }, func(*net.TCPConn) {}, tracker.Aborted, tracker.ByApp, tracker.HowRST},
		{"app leaves mid-response", func(c *net.TCPConn) {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
			_ = c.Close()
		}, func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c); _ = c.Close() }, tracker.Aborted, tracker.ByApp, tracker.HowFIN},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			c, _ := w.dial(t)
			ask(t, c, "/x")
			a, err := w.app.Accept()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := http.ReadRequest(bufio.NewReader(a)); err != nil {
				t.Fatal(err)
			}
			at, _ := a.(*net.TCPConn)
			tt.app(at)
			tt.cli(c)
			trackertest.WaitFor(t, w.reg, trackertest.Ended(tracker.WhatConnection, 1))
			trackertest.WantFate(t, w.reg, tracker.WhatStream, tracker.KindHTTP1, tt.fate, tt.by, 1)
			trackertest.WantFate(t, w.reg, tracker.WhatConnection, tracker.KindHTTP1, tt.fate, tt.by, 1)
			if rec, _, ok := w.reg.Get(1); ok && rec.How != tt.how {
				t.Errorf("how: got %v, want %v", rec.How, tt.how)
			}
			_ = a.Close()
		})
	}
}

func TestAppNotListening(t *testing.T) {
	w := newWorld(t)
	_ = w.app.Close()
	c, err := net.Dial("tcp", w.addr)
	if err == nil {
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		_, err = c.Read(make([]byte, 1))
		_ = c.Close()
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("client: got %v, want %v", err, syscall.ECONNRESET)
	}
	trackertest.WaitFor(t, w.reg, trackertest.Ended(tracker.WhatConnection, 1))
	trackertest.WantFate(t, w.reg, tracker.WhatConnection, tracker.KindTCP, tracker.Unreachable, tracker.ByApp, 1)
}

// A drain's orders on real connections: what each peer sees, and the fate that is booked.
func TestOrdersOfADrain(t *testing.T) {
	w := newWorld(t)
	release := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/hello", hello)
	mux.HandleFunc("/slow", func(rw http.ResponseWriter, q *http.Request) { <-release; hello(rw, q) })
	mux.HandleFunc("/never", func(_ http.ResponseWriter, q *http.Request) { <-q.Context().Done() })
	mux.HandleFunc("/ws", func(rw http.ResponseWriter, q *http.Request) {
		k, err := websocket.Accept(rw, q, nil)
		if err == nil {
			_, _, _ = k.Read(context.Background())
		}
	})
	mux.HandleFunc("/events", func(rw http.ResponseWriter, q *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(rw, "data: 1\n\n")
		_ = http.NewResponseController(rw).Flush()
		<-q.Context().Done()
	})
	w.serve(t, mux)

	idle, idleR := w.dial(t)
	ask(t, idle, "/hello")
	answer(t, idleR)
	slow, slowR := w.dial(t)
	ask(t, slow, "/slow")
	never, _ := w.dial(t)
	ask(t, never, "/never")
	sse, sseR := w.dial(t)
	ask(t, sse, "/events")
	sseRes, err := http.ReadResponse(sseR, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(sseRes.Body, make([]byte, 9)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, "ws://"+w.addr+"/ws", nil)
	if err != nil {
		t.Fatal(err)
	}
	trackertest.WaitFor(t, w.reg, func(r *tracker.Registry) bool { return r.Remaining().Streams == 4 })

	w.reg.BeginDrain("test", w.reg.Now(), w.reg.Now()+int64(time.Minute))
	w.srv.Farewell()
	_ = w.srv.CloseConn(1<<40, true) // asks every loop, and so returns when each has said farewell
	close(release)
	if res, body := answer(t, slowR); !res.Close || body != "hello" {
		t.Errorf("slow: got close %t %q, want its whole answer with Connection: close", res.Close, body)
	}
	if _, err := slowR.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("slow, after its answer: got %v, want a FIN", err)
	}
	w.reg.SetPhase(tracker.Draining)
	w.srv.Reject(false)
	late, lateR := w.dial(t)
	ask(t, late, "/hello")
	if res, _ := answer(t, lateR); res.StatusCode != 503 || !res.Close {
		t.Errorf("late: got %d close %t, want 503 and Connection: close", res.StatusCode, res.Close)
	}
	for name, first := range map[string]string{"raw": "\x00\x01", "TLS": "\x16\x03\x01\x00\x05hello", "not HTTP": "PING\r\n"} {
		c, _ := w.dial(t)
		_, _ = io.WriteString(c, first)
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("late %s: got %v, want %v", name, err, syscall.ECONNRESET)
		}
	}
	probe, probeR := w.dial(t)
	_, _ = io.WriteString(probe, "GET /hello HTTP/1.1\r\nHost: h\r\nUser-Agent: kube-probe/1.34\r\n\r\n")
	if res, _ := answer(t, probeR); res.StatusCode != 200 {
		t.Errorf("probe: got %d, want 200", res.StatusCode)
	}
	_ = probe.Close()
	trackertest.WaitFor(t, w.reg, func(r *tracker.Registry) bool {
		rec, _, ok := r.Get(10) // the tenth connection: the probe's
		return ok && rec.Fate != tracker.FateOpen
	})
	w.srv.CloseIdle(w.ids(t))
	if _, err := idleR.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("idle: got %v, want a FIN", err)
	}
	w.srv.End(w.ids(t))
	if _, _, err := ws.Read(ctx); websocket.CloseStatus(err) != 1012 {
		t.Errorf("websocket: got %v, want Close 1012", err)
	}
	if rest, err := io.ReadAll(sseRes.Body); err != nil || len(rest) != 0 {
		t.Errorf("events: got %q, %v; want a clean end", rest, err)
	}
	w.srv.Cut()
	if _, err := never.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("never: got %v, want %v", err, syscall.ECONNRESET)
	}
	for _, c := range []net.Conn{idle, slow, sse, late} {
		_ = c.Close()
	}
	_ = ws.CloseNow()
	trackertest.WaitFor(t, w.reg, trackertest.Ended(tracker.WhatConnection, 10))
	for _, want := range []struct {
		what tracker.What
		kind tracker.Kind
		fate tracker.Fate
		by   tracker.Party
		n    uint64
	}{
		{tracker.WhatStream, tracker.KindHTTP1, tracker.Rejected, tracker.ByLastcall, 1},
		{tracker.WhatStream, tracker.KindHTTP1, tracker.Cut, tracker.ByLastcall, 1},
		{tracker.WhatStream, tracker.KindSSE, tracker.Ended, tracker.ByLastcall, 1},
		{tracker.WhatStream, tracker.KindWebSocket, tracker.Ended, tracker.ByLastcall, 1},
		{tracker.WhatConnection, tracker.KindHTTP1, tracker.Drained, tracker.ByLastcall, 2},
		{tracker.WhatConnection, tracker.KindHTTP1, tracker.Rejected, tracker.ByLastcall, 1},
		{tracker.WhatConnection, tracker.KindTCP, tracker.Rejected, tracker.ByLastcall, 2},
		{tracker.WhatConnection, tracker.KindTLS, tracker.Rejected, tracker.ByLastcall, 1},
		{tracker.WhatConnection, tracker.KindHTTP1, tracker.Cut, tracker.ByLastcall, 1},
	} {
		trackertest.WantFate(t, w.reg, want.what, want.kind, want.fate, want.by, want.n)
	}
	recs, _, err := w.reg.Query(tracker.Query{What: tracker.WhatStream, State: tracker.StateClosed, Fate: tracker.Rejected, Limit: 20})
	if err != nil {
		t.Fatal(err)
	}
	for i := range recs {
		want := tracker.HowProtocol // 503
		if k := recs[i].Kind; k == tracker.KindTCP || k == tracker.KindTLS {
			want = tracker.HowRST // it has no word but that
		}
		if recs[i].How != want {
			t.Errorf("refused: %s", recs[i].AppendJSON(nil))
		}
	}
}
