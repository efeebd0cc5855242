package admin

import (
	_ "embed" // the page
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/lastcall-proxy/lastcall/tracker"
)

// Errors that a Controller wraps.
var (
	ErrNotFound = errors.New("not found")
	ErrConflict = errors.New("conflict")
)

// NewAdmin makes the admin handler.
func NewAdmin(cfg Config) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/connections", cfg.list(tracker.WhatConnection, "connections"))
	mux.HandleFunc("GET /v1/streams", cfg.list(tracker.WhatStream, "streams"))
	mux.HandleFunc("GET /v1/connections/{id}", cfg.connection)
	mux.HandleFunc("DELETE /v1/connections/{id}", cfg.closeConnection)
	mux.HandleFunc("GET /v1/drain", func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, cfg.Registry.Drain()) })
	mux.HandleFunc("POST /v1/drain", func(w http.ResponseWriter, _ *http.Request) {
		cfg.done(w, http.StatusAccepted, cfg.Controller.StartDrain("api"))
	})
	mux.HandleFunc("DELETE /v1/drain", func(w http.ResponseWriter, _ *http.Request) {
		cfg.done(w, http.StatusAccepted, cfg.Controller.CancelDrain())
	})
	mux.HandleFunc("GET /v1/report", func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, cfg.Registry.Report()) })
	mux.HandleFunc("GET /v1/events", cfg.events)
	cfg.rehearsals(mux)
	if cfg.Settings != nil {
		mux.HandleFunc("GET /v1/config", func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, cfg.Settings()) })
	}
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /{$}", page)
	mux.HandleFunc("/", methodOrNotFound(mux))
	cross := http.NewCrossOriginProtection()
	cross.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fail(w, http.StatusForbidden, "cross_origin", "a page of another origin may not change anything here")
	}))
	web, rpc := cross.Handler(mux), newGRPC(cfg)
	return cfg.guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isGRPC(r) {
			rpc.ServeHTTP(w, r)
			return
		}
		web.ServeHTTP(w, r)
	}))
}

//go:embed page.html
var pageHTML []byte

// page is the web page: it asks the same API. It may load nothing from elsewhere and be framed by nobody.
func page(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'")
	_, _ = w.Write(pageHTML)
}

// guard asks for the token; where none is configured, it refuses names other than loopback's, so that a page whose name was
// bound to 127.0.0.1 can't read the API (DNS rebinding).
func (cfg Config) guard(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if cfg.Token != "" && r.URL.Path != "/" { // the page holds no facts; what it asks for does
			token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
			if !ok || !same(token, cfg.Token) {
				if isGRPC(r) {
					failGRPC(w, codes.Unauthenticated, "a bearer token is needed")
					return
				}
				w.Header().Set("WWW-Authenticate", "Bearer")
				fail(w, http.StatusUnauthorized, "unauthorized", "a bearer token is needed")
				return
			}
		} else if cfg.Token == "" && !loopback(r.Host) {
			if isGRPC(r) {
				failGRPC(w, codes.PermissionDenied, "without a token this API answers to loopback names only")
				return
			}
			fail(w, http.StatusForbidden, "bad_host", "without a token this API answers to loopback names only")
			return
		}
		h.ServeHTTP(w, r)
	})
}

// failGRPC is an answer of trailers alone.
func failGRPC(w http.ResponseWriter, code codes.Code, message string) {
	h := w.Header()
	h.Set("Content-Type", "application/grpc")
	h.Set("Grpc-Status", strconv.Itoa(int(code)))
	h.Set("Grpc-Message", message)
	w.WriteHeader(http.StatusOK)
}

func loopback(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && ip.IsLoopback()
}

func (cfg Config) done(w http.ResponseWriter, status int, err error) {
	switch {
	case err == nil:
		reply(w, status, cfg.Registry.Drain())
	case errors.Is(err, ErrNotFound):
		fail(w, http.StatusNotFound, "not_found", err.Error())
	case errors.Is(err, ErrConflict):
		fail(w, http.StatusConflict, "conflict", err.Error())
	default:
		fail(w, http.StatusInternalServerError, "internal", err.Error())
	}
}

func (cfg Config) list(what tracker.What, name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		values, err := url.ParseQuery(r.URL.RawQuery)
		if err != nil {
			fail(w, http.StatusBadRequest, "bad_parameter", err.Error())
			return
		}
		q, err := parseQuery(what, values)
		if err != nil {
			fail(w, http.StatusBadRequest, "bad_parameter", err.Error())
			return
		}
		recs, next, err := cfg.Registry.Query(q)
		if err != nil {
			fail(w, http.StatusBadRequest, "bad_parameter", err.Error())
			return
		}
		if recs == nil {
			recs = []tracker.Record{}
		}
		reply(w, http.StatusOK, map[string]any{name: recs, "next_cursor": next})
	}
}

// parseQuery reads a list's parameters; an unknown or malformed one is an error that names it.
func parseQuery(what tracker.What, v url.Values) (tracker.Query, error) {
	q := tracker.Query{What: what}
	for name, vals := range v {
		val := vals[0]
		if len(vals) > 1 {
			return q, fmt.Errorf("%s: given %d times", name, len(vals))
		}
		var err error
		switch name {
		case "state":
			q.State, err = tracker.ParseState(val)
		case "kind":
			q.Kind, err = pointer(tracker.ParseKind(val))
		case "direction":
			q.Direction, err = pointer(tracker.ParseDirection(val))
		case "waiting_on":
			q.WaitingOn, err = pointer(tracker.ParseWaitingOn(val))
		case "fate":
			q.Fate, err = tracker.ParseFate(val)
		case "older":
			q.Older, err = span(val)
		case "idle":
			q.Idle, err = span(val)
		case "sort":
			q.Sort, err = tracker.ParseSort(val)
		case "limit":
			if q.Limit, err = strconv.Atoi(val); err == nil && (q.Limit < 1 || q.Limit > tracker.MaxLimit) {
				err = fmt.Errorf("want 1 to %d", tracker.MaxLimit)
			}
		case "cursor":
			q.Cursor = val
		default:
			err = errors.New("unknown parameter")
		}
		if err != nil {
			return q, fmt.Errorf("%s: %w", name, err)
		}
	}
	return q, nil
}

func span(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err == nil && d < 0 {
		err = errors.New("must not be negative")
	}
	return d, err
}

func pointer[T any](v T, err error) (*T, error) { return &v, err }

// connID reads "c42" or "42".
func connID(s string) (uint64, error) { return strconv.ParseUint(strings.TrimPrefix(s, "c"), 10, 64) }

func (cfg Config) connection(w http.ResponseWriter, r *http.Request) {
	id, err := connID(r.PathValue("id"))
	if err != nil {
		fail(w, http.StatusBadRequest, "bad_parameter", "id: want c42 or 42")
		return
	}
	conn, streams, ok := cfg.Registry.Get(id)
	if !ok {
		fail(w, http.StatusNotFound, "not_found", "no such connection, open or remembered")
		return
	}
	if streams == nil {
		streams = []tracker.Record{}
	}
	out := map[string]any{"connection": conn, "streams": streams}
	if conn.Fate == tracker.FateOpen {
		if v := cfg.Controller.Inspect(id); v != nil {
			out["http2"] = v
		}
	}
	reply(w, http.StatusOK, out)
}

func (cfg Config) closeConnection(w http.ResponseWriter, r *http.Request) {
	id, err := connID(r.PathValue("id"))
	if err != nil {
		fail(w, http.StatusBadRequest, "bad_parameter", "id: want c42 or 42")
		return
	}
	mode := r.URL.Query().Get("mode")
	if mode != "" && mode != "polite" && mode != "cut" {
		fail(w, http.StatusBadRequest, "bad_parameter", "mode: want polite or cut")
		return
	}
	if err := cfg.Controller.CloseConn(id, mode != "cut"); err != nil {
		cfg.done(w, 0, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// slowReader is how long a reader may take nothing before it is given up.
const slowReader = 30 * time.Second

// eventBuffer is how many events a slow reader may be behind before it misses some.
const eventBuffer = 4096

// events streams what happens, as server-sent events.
func (cfg Config) events(w http.ResponseWriter, r *http.Request) {
	ch, stop := cfg.Registry.Subscribe(eventBuffer, tracker.Interest{})
	defer stop()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	out := http.NewResponseController(w)
	_ = out.SetReadDeadline(time.Time{}) // the request is read; its deadline must not end the stream
	if out.Flush() != nil {
		return
	}
	beat := time.NewTicker(slowReader / 2)
	defer beat.Stop()
	for {
		// A reader that takes nothing for this long is gone.
		_ = out.SetWriteDeadline(time.Now().Add(slowReader))
		select {
		case <-r.Context().Done():
			return
		case <-beat.C: // a comment, so that a reader that is gone is found out
			if _, err := fmt.Fprint(w, ":\n\n"); err != nil || out.Flush() != nil {
				return
			}
		case e, ok := <-ch:
			if !ok {
				return
			}
			b, err := json.Marshal(e)
			if err != nil {
				return
			}
			if _, err := fmt.Fprintf(w, "event: %s\ndata: %s\n\n", e.Type, b); err != nil {
				return
			}
			if len(ch) == 0 && out.Flush() != nil {
				return
			}
		}
	}
}
