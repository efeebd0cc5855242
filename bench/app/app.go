// Package app is a workload to prove things on: HTTP/1, HTTP/2, gRPC, WebSocket and server-sent events on one port, raw TCP
// on another. It keeps a ledger of its own, has good or bad manners at SIGTERM as it is told, and can be asked to go wrong
// once in a known way.
package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// Manners is what the app does at SIGTERM.
type Manners string

// Manners.
const (
	Drain  Manners = "drain"  // says goodbye to everybody and finishes what is under way
	Exit   Manners = "exit"   // goes at once
	Ignore Manners = "ignore" // stays
)

// Config sets an app up.
type Config struct {
	HTTP, TCP string // where to listen; TCP may be ""
	// Timeout bounds a drain.
	Timeout time.Duration
}

// App is a running app.
type App struct {
	HTTPAddr, TCPAddr string

	ledger *Ledger
	http   *http.Server
	tcp    net.Listener
	wg     sync.WaitGroup
	going  chan struct{} // closed when it drains
	once   sync.Once
	limit  time.Duration

	mu      sync.Mutex
	planted map[string]bool
	conns   map[net.Conn]struct{} // of TCP
}

// Start listens and serves.
func Start(ctx context.Context, cfg Config) (*App, error) {
	a := &App{ledger: newLedger(), going: make(chan struct{}), planted: map[string]bool{}, conns: map[net.Conn]struct{}{}, limit: cfg.Timeout}
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	ln, err := lc.Listen(ctx, "tcp", cfg.HTTP)
	if err != nil {
		return nil, fmt.Errorf("app: %w", err)
	}
	a.HTTPAddr = ln.Addr().String()
	if cfg.TCP != "" {
		if a.tcp, err = lc.Listen(ctx, "tcp", cfg.TCP); err != nil {
			_ = ln.Close()
			return nil, fmt.Errorf("app: %w", err)
		}
		a.TCPAddr = a.tcp.Addr().String()
		a.wg.Go(a.serveTCP)
	}
	var p http.Protocols
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	a.http = &http.Server{Handler: a.handler(), Protocols: &p, ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(io.Discard, "", 0)}
	a.wg.Go(func() { _ = a.http.Serve(ln) })
	return a, nil
}

// Ledger is what the app has seen so far.
func (a *App) Ledger() Counts { return a.ledger.counts() }

// Drain says goodbye to everybody and returns when all have left, or when the time is over.
func (a *App) Drain() {
	a.once.Do(func() { close(a.going) })
	ctx, cancel := context.WithTimeout(context.Background(), a.limit)
	defer cancel()
	if a.tcp != nil {
		_ = a.tcp.Close()
	}
	_ = a.http.Shutdown(ctx)
	for ctx.Err() == nil && a.ledger.open() > 0 {
		time.Sleep(5 * time.Millisecond)
	}
	a.Close()
}

// Close goes at once.
func (a *App) Close() {
	a.once.Do(func() { close(a.going) })
	_ = a.http.Close()
	if a.tcp != nil {
		_ = a.tcp.Close()
	}
	a.mu.Lock()
	for c := range a.conns {
		_ = c.Close()
	}
	a.mu.Unlock()
	a.wg.Wait()
}

// plant says, the first time it is asked for a fault, that now is the time for it.
func (a *App) plant(what string) bool {
	if what == "" {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.planted[what] {
		return false
	}
	a.planted[what] = true
	return true
}

func (a *App) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", a.answer)
	mux.HandleFunc("/ws", a.webSocket)
	mux.HandleFunc("/events", a.events)
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		select {
		case <-a.going:
			http.Error(w, "draining", http.StatusServiceUnavailable)
		default:
			_, _ = io.WriteString(w, "ok\n")
		}
	})
	mux.HandleFunc("GET /ledger", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(a.Ledger())
	})
	rpc := a.grpc()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
			rpc.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// answer reads the request and answers it: ?for=2s later, ?plant=… once in a bad way.
func (a *App) answer(w http.ResponseWriter, r *http.Request) {
	kind := "http1"
	if r.ProtoMajor == 2 {
		kind = "http2"
	}
	a.ledger.begin(kind)
	ended := false
	defer func() {
		if !ended {
			a.ledger.end(kind, false)
		}
	}()
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return
	}
	if d, err := time.ParseDuration(r.URL.Query().Get("for")); err == nil {
		select {
		case <-time.After(d):
		case <-r.Context().Done():
			return
		}
	}
	const body = "answered\n"
	if what := r.URL.Query().Get("plant"); a.plant(what) {
		a.fault(w, r, what, body)
		return
	}
	_, err := io.WriteString(w, body)
	ended = true
	a.ledger.end(kind, err == nil)
}

// fault goes wrong on purpose.
func (a *App) fault(w http.ResponseWriter, r *http.Request, what, body string) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	one := "HTTP/1.1 200 OK\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
	switch what {
	case "duplicate":
		_, _ = io.WriteString(c, one+one)
	case "reset":
		if t, ok := c.(*net.TCPConn); ok {
			_ = t.SetLinger(0)
		}
	case "truncate":
		_, _ = io.WriteString(c, one[:len(one)-3])
	case "silent":
		select {
		case <-a.going:
		case <-time.After(time.Minute):
		}
	}
	_ = c.Close()
}

// script is what a session is to do wrong: ?lose=5 doesn't answer the fifth message, once in the app's life; likewise
// duplicate, silent (from then on) and reset.
type script struct {
	app  *App
	at   map[string]uint64
	mute bool
}

func (a *App) script(r *http.Request) *script {
	s := &script{app: a, at: map[string]uint64{}}
	for _, what := range []string{"lose", "duplicate", "silent", "reset"} {
		if n, err := strconv.ParseUint(r.URL.Query().Get(what), 10, 64); err == nil {
			s.at[what] = n
		}
	}
	return s
}

// answers is how often the n-th message is answered; reset ends the session.
func (s *script) answers(n uint64) (times int, reset bool) {
	hit := func(what string) bool { at, ok := s.at[what]; return ok && at == n && s.app.plant("session "+what) }
	switch {
	case s.mute:
		return 0, false
	case hit("lose"):
		return 0, false
	case hit("duplicate"):
		return 2, false
	case hit("silent"):
		s.mute = true
		return 0, false
	case hit("reset"):
		return 0, true
	}
	return 1, false
}

func (a *App) webSocket(w http.ResponseWriter, r *http.Request) {
	plan := a.script(r)
	c, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	c.SetReadLimit(64 << 20)
	a.ledger.begin("websocket")
	whole := false
	defer func() { a.ledger.end("websocket", whole); _ = c.CloseNow() }()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	told := make(chan struct{})
	go func() {
		select {
		case <-a.going:
			_ = c.Close(websocket.StatusGoingAway, "")
		case <-ctx.Done():
		}
		close(told)
	}()
	for n := uint64(1); ; n++ {
		typ, b, err := c.Read(ctx)
		if err != nil {
			var closed websocket.CloseError
			whole = errors.As(err, &closed)
			select {
			case <-a.going:
				<-told
				whole = true
			default:
			}
			return
		}
		a.ledger.message("websocket", true)
		times, reset := plan.answers(n)
		if reset {
			return
		}
		for range times {
			if c.Write(ctx, typ, b) != nil {
				return
			}
			a.ledger.message("websocket", false)
		}
	}
}

// events sends a numbered event ?every=100ms.
func (a *App) events(w http.ResponseWriter, r *http.Request) {
	every, err := time.ParseDuration(r.URL.Query().Get("every"))
	if err != nil || every <= 0 {
		every = 200 * time.Millisecond
	}
	plan := a.script(r)
	a.ledger.begin("sse")
	whole := false
	defer func() { a.ledger.end("sse", whole) }()
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := uint64(1); ; n++ {
		times, reset := plan.answers(n)
		if reset {
			panic(http.ErrAbortHandler)
		}
		for range times {
			if _, err := fmt.Fprintf(w, "id: %d\ndata: event\n\n", n); err != nil || out.Flush() != nil {
				return
			}
			a.ledger.message("sse", false)
		}
		select {
		case <-tick.C:
		case <-a.going:
			whole = true
			return
		case <-r.Context().Done():
			return
		}
	}
}

// serveTCP echoes lines.
func (a *App) serveTCP() {
	for {
		c, err := a.tcp.Accept()
		if err != nil {
			return
		}
		a.mu.Lock()
		a.conns[c] = struct{}{}
		a.mu.Unlock()
		a.ledger.begin("tcp")
		a.wg.Go(func() {
			whole := a.echo(c)
			a.ledger.end("tcp", whole)
			a.mu.Lock()
			delete(a.conns, c)
			a.mu.Unlock()
			_ = c.Close()
		})
	}
}

func (a *App) echo(c net.Conn) (whole bool) {
	over := make(chan struct{})
	defer close(over)
	go func() {
		select {
		case <-a.going: // what has come is answered; the deadline wakes the reader
			_ = c.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		case <-over:
		}
	}()
	buf := make([]byte, 32<<10)
	for {
		n, err := c.Read(buf)
		if n > 0 {
			a.ledger.bytes("tcp", n)
			if _, err := c.Write(buf[:n]); err != nil {
				return false
			}
		}
		var t net.Error
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			return true
		case errors.As(err, &t) && t.Timeout():
			goodbye(c)
			return true
		default:
			return false
		}
	}
}

// goodbye says FIN and reads on for a moment: closing with something unread would send a reset, and the client might lose
// what it was answered.
func goodbye(c net.Conn) {
	if h, ok := c.(interface{ CloseWrite() error }); ok {
		_ = h.CloseWrite()
	}
	_ = c.SetReadDeadline(time.Now().Add(time.Second))
	_, _ = io.Copy(io.Discard, c)
}
