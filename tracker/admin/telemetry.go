// Package admin serves a registry over HTTP: telemetry, read-only and reachable from outside the pod, and the admin API,
// which can end connections and start a drain and so listens on loopback unless a token guards it.
//
// Errors are {"error":{"code":"…","message":"…"}} with the fitting status.
package admin

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/lastcall-proxy/lastcall/tracker"
)

// Controller does what the API is asked for. Its errors wrap ErrNotFound or ErrConflict where they are the caller's.
type Controller interface {
	StartDrain(trigger string) error
	CancelDrain() error
	CloseConn(id uint64, polite bool) error
	// Inspect tells what an open connection's HTTP/2 says of itself; nil: it speaks none, or nothing is known.
	Inspect(id uint64) *HTTP2
	Drained() <-chan struct{}
}

// HTTP2 is what a connection's HTTP/2 says of itself at this moment.
type HTTP2 struct {
	// Window is how many bytes each side may still send on the connection (RFC 9113 section 6.9).
	Window tracker.Sides[int64] `json:"window"`
	// PingRTT is how long each side last took to answer a PING; absent if none was seen.
	PingRTT RoundTrips `json:"ping_rtt_s"`
	// Streams are the open ones by id, such as "c42.7".
	Streams map[string]HTTP2Stream `json:"streams"`
}

// RoundTrips holds a time for each side.
type RoundTrips struct {
	Client *tracker.Seconds `json:"client,omitempty"`
	App    *tracker.Seconds `json:"app,omitempty"`
}

// HTTP2Stream is one open stream.
type HTTP2Stream struct {
	// Window is how many bytes each side may still send on it.
	Window tracker.Sides[int64] `json:"window"`
}

// Config sets up both handlers.
type Config struct {
	Registry   *tracker.Registry
	Controller Controller
	Rehearser  Rehearser             // nil: no rehearsals
	Metrics    http.Handler          // GET /metrics
	Ready      func() (bool, string) // the reason when not ready
	Settings   func() any            // GET /v1/config; nil: not served
	Token      string                // of the admin API; "": none is asked for
	HookToken  string                // of the hooks; "": no hooks
}

// NewTelemetry makes the telemetry handler.
func NewTelemetry(cfg Config) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { text(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if ok, why := cfg.Ready(); !ok {
			text(w, http.StatusServiceUnavailable, why)
			return
		}
		text(w, http.StatusOK, "ok")
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(slowReader)) // not supported by a test's recorder
		cfg.Metrics.ServeHTTP(w, r)
	})
	mux.HandleFunc("GET /hooks/{token}/prestop", cfg.hook(func(w http.ResponseWriter, _ *http.Request) {
		if err := cfg.Controller.StartDrain("prestop"); err != nil {
			fail(w, http.StatusConflict, "conflict", err.Error())
			return
		}
		text(w, http.StatusOK, "draining")
	}))
	mux.HandleFunc("GET /hooks/{token}/wait", cfg.hook(cfg.wait))
	mux.HandleFunc("/", methodOrNotFound(mux))
	return mux
}

// hook lets a call pass that knows the token; without one configured there are no hooks.
func (cfg Config) hook(f http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if cfg.HookToken == "" || !same(r.PathValue("token"), cfg.HookToken) {
			notFound(w, r)
			return
		}
		f(w, r)
	}
}

// maxWait bounds a wait hook that names no time of its own.
const maxWait = 25 * time.Second

// wait holds the app's SIGTERM back until the sidecar is drained, or for ?max.
func (cfg Config) wait(w http.ResponseWriter, r *http.Request) {
	limit := maxWait
	if v := r.URL.Query().Get("max"); v != "" {
		d, err := time.ParseDuration(v)
		if err != nil || d <= 0 {
			fail(w, http.StatusBadRequest, "bad_parameter", "max: want a positive duration such as 25s")
			return
		}
		limit = d
	}
	ctx, cancel := context.WithTimeout(r.Context(), limit)
	defer cancel()
	select {
	case <-cfg.Controller.Drained():
		text(w, http.StatusOK, "drained")
	case <-ctx.Done():
		text(w, http.StatusOK, "not drained yet")
	}
}

// same compares in constant time, whatever the lengths.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

func text(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body + "\n"))
}

func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a client that left gets nothing
}

func fail(w http.ResponseWriter, status int, code, message string) {
	reply(w, status, map[string]map[string]string{"error": {"code": code, "message": message}})
}

// methodOrNotFound tells a wrong method from a wrong path.
func methodOrNotFound(mux *http.ServeMux) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var allowed []string
		for _, m := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
			try := r.Clone(r.Context())
			try.Method = m
			if _, pattern := mux.Handler(try); m != r.Method && pattern != "/" && pattern != "" {
				allowed = append(allowed, m)
			}
		}
		if len(allowed) > 0 {
			w.Header().Set("Allow", strings.Join(allowed, ", "))
			fail(w, http.StatusMethodNotAllowed, "method_not_allowed", r.Method+" is not for "+r.URL.Path)
			return
		}
		notFound(w, r)
	}
}

func notFound(w http.ResponseWriter, r *http.Request) {
	fail(w, http.StatusNotFound, "not_found", "no such resource: "+r.URL.Path)
}

// Server wraps a handler with the time limits that keep slow clients from holding it. Answers have no write limit:
// /v1/events and profiles run as long as they are wanted. It speaks HTTP/1.1, and HTTP/2 without TLS for gRPC.
func Server(h http.Handler) *http.Server {
	var p http.Protocols
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	return &http.Server{Handler: h, Protocols: &p, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 100, SendPingTimeout: slowReader, WriteByteTimeout: slowReader}, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, IdleTimeout: 60 * time.Second, MaxHeaderBytes: 16 << 10}
}
