package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// demoApp is the workload of `lastcall demo`: an ordinary HTTP server and a TCP echo, with no drain logic of its own.
type demoApp struct {
	http, tcp net.Listener
	srv       *http.Server
	wg        sync.WaitGroup
}

func startDemoApp(ctx context.Context) (*demoApp, error) {
	var lc net.ListenConfig
	h, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("demo: app: %w", err)
	}
	t, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("demo: app: %w", err)
	}
	a := &demoApp{http: h, tcp: t}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /fast", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "fast\n") })
	mux.HandleFunc("GET /slow", func(w http.ResponseWriter, r *http.Request) {
		if pause(r.Context(), 6*time.Second) {
			_, _ = io.WriteString(w, "slow but whole\n")
		}
	})
	mux.HandleFunc("GET /never", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	mux.HandleFunc("GET /events", a.events)
	mux.HandleFunc("GET /chat", a.chat)
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	a.srv = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, Protocols: &protocols}
	a.wg.Go(func() { _ = a.srv.Serve(h) })
	a.wg.Go(a.echo)
	return a, nil
}

// pause waits, or says that ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (a *demoApp) events(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	for n := 1; ; n++ {
		if _, err := fmt.Fprintf(w, "id: %d\ndata: tick %d\n\n", n, n); err != nil {
			return
		}
		if out.Flush() != nil || !pause(r.Context(), 300*time.Millisecond) {
			return
		}
	}
}

func (a *demoApp) chat(w http.ResponseWriter, r *http.Request) {
	c, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer func() { _ = c.CloseNow() }()
	for {
		kind, p, err := c.Read(r.Context())
		if err != nil {
			return
		}
		if c.Write(r.Context(), kind, p) != nil {
			return
		}
	}
}

func (a *demoApp) echo() {
	for {
		c, err := a.tcp.Accept()
		if err != nil {
			return
		}
		a.wg.Go(func() {
			_, _ = io.Copy(c, c)
			_ = c.Close()
		})
	}
}

func (a *demoApp) stop() {
	_ = a.tcp.Close()
	_ = a.srv.Close()
	a.wg.Wait()
}
