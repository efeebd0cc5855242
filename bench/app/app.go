// Package app is a workload to prove things on: HTTP/1, HTTP/2, gRPC, WebSocket and server-sent events on one port, raw TCP
// on another. It keeps a ledger of its own, has good or bad manners at SIGTERM as it is told, and can be asked to go wrong
// once in a known way.
package app

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
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
	// Where to listen; "" is nowhere. HTTPS and TLS serve the same as HTTP and TCP, with a certificate made at the start.
	HTTP, HTTPS, TCP, TLS string
	// Timeout bounds a drain.
	Timeout time.Duration
}

// App is a running app.
type App struct {
	HTTPAddr, HTTPSAddr, TCPAddr, TLSAddr string

	ledger *Ledger
	http   *http.Server
	tcp    []net.Listener
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
	listen, addr := map[string]net.Listener{}, map[string]string{}
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	for name, at := range map[string]string{"http": cfg.HTTP, "https": cfg.HTTPS, "tcp": cfg.TCP, "tls": cfg.TLS} {
		if at == "" {
			continue
		}
		ln, err := lc.Listen(ctx, "tcp", at)
		if err != nil {
			for _, ln := range listen {
				_ = ln.Close()
			}
			return nil, fmt.Errorf("app: --%s: %w", name, err)
		}
		listen[name], addr[name] = ln, ln.Addr().String()
	}
	a.HTTPAddr, a.HTTPSAddr, a.TCPAddr, a.TLSAddr = addr["http"], addr["https"], addr["tcp"], addr["tls"]
	var secure *tls.Config
	if cfg.HTTPS != "" || cfg.TLS != "" {
		cert, err := selfSigned()
		if err != nil {
			return nil, fmt.Errorf("app: certificate: %w", err)
		}
		secure = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	}
	var p http.Protocols
	p.SetHTTP1(true)
	p.SetHTTP2(true)
	p.SetUnencryptedHTTP2(true)
	a.http = &http.Server{Handler: a.handler(), Protocols: &p, TLSConfig: secure, ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(io.Discard, "", 0)}
	for name, ln := range listen {
		switch name {
		case "http":
			a.wg.Go(func() { _ = a.http.Serve(ln) })
		case "https":
			a.wg.Go(func() { _ = a.http.ServeTLS(ln, "", "") })
		case "tls":
			ln = tls.NewListener(ln, secure)
			fallthrough
		case "tcp":
			a.tcp = append(a.tcp, ln)
			a.wg.Go(func() { a.serveTCP(ln) })
		}
	}
	return a, nil
}

// Ledger is what the app has seen so far.
func (a *App) Ledger() Counts { return a.ledger.counts() }

// Drain says goodbye to everybody and returns when all have left, or when the time is over.
func (a *App) Drain() {
	a.once.Do(func() { close(a.going) })
	ctx, cancel := context.WithTimeout(context.Background(), a.limit)
	defer cancel()
	for _, ln := range a.tcp {
		_ = ln.Close()
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
	for _, ln := range a.tcp {
		_ = ln.Close()
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
