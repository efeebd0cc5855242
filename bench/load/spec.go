package load

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Kind is what a load speaks.
type Kind string

// Kinds.
const (
	HTTP1      Kind = "http1"     // on kept connections
	HTTP1New   Kind = "http1-new" // one connection each
	HTTP2      Kind = "http2"
	GRPCUnary  Kind = "grpc-unary"
	GRPCStream Kind = "grpc-stream"
	WebSocket  Kind = "websocket"
	SSE        Kind = "sse"
	TCP        Kind = "tcp"
)

// Kinds is the closed list.
func Kinds() []Kind {
	return []Kind{HTTP1, HTTP1New, HTTP2, GRPCUnary, GRPCStream, WebSocket, SSE, TCP}
}

// Long says whether the kind's unit is a session rather than a request.
func (k Kind) Long() bool {
	return k == GRPCStream || k == WebSocket || k == SSE || k == TCP
}

// Mode says who sends the messages of a session.
type Mode string

// Modes. "" is echo for websocket and bidi for grpc-stream.
const (
	ModeEcho   Mode = "echo"   // websocket: we do, and expect them back
	ModePush   Mode = "push"   // websocket: the server does
	ModeBidi   Mode = "bidi"   // grpc-stream: we do, and expect them back
	ModeServer Mode = "server" // grpc-stream: the server does
	ModeClient Mode = "client" // grpc-stream: we do, and the server answers at the end
)

// Reconnect says what a session's client does when it was ended.
type Reconnect string

// Ways of coming back.
const (
	Backoff Reconnect = "backoff" // after 100 ms, doubling to 5 s, each with full jitter
	Naive   Reconnect = "naive"   // at once, and every 100 ms until it works
	Never   Reconnect = "never"
)

// Spec is one load.
type Spec struct {
	Kind     Kind          `json:"kind"`
	Target   string        `json:"target"`
	Rate     float64       `json:"rate,omitempty"`     // requests a second
	Conns    int           `json:"conns,omitempty"`    // kept connections
	Sessions int           `json:"sessions,omitempty"` // long-lived ones
	Interval time.Duration `json:"interval,omitempty"` // between a session's messages
	Size     int           `json:"size,omitempty"`     // of a request's body, or of a message
	Data     []byte        `json:"data,omitempty"`     // gRPC: the message
	Timeout  time.Duration `json:"timeout,omitempty"`  // of one request, of one echo
	Retry    string        `json:"retry,omitempty"`    // "library": the client's library may retry
	Insecure bool          `json:"insecure,omitempty"` // TLS: any certificate will do
	Mode     Mode          `json:"mode,omitempty"`     // of websocket and grpc-stream: who sends
	Over     time.Duration `json:"over,omitempty"`     // HTTP: the body of size bytes is sent evenly over this time
	Resume   bool          `json:"resume,omitempty"`   // SSE: come back with Last-Event-ID
	// Ready and Next stand for a Service's endpoints: new connections go to the target for as long as Ready answers with
	// 2xx, and to Next, a host:port, from Lag after it has ceased to.
	Ready string        `json:"ready,omitempty"`
	Next  string        `json:"next,omitempty"`
	Lag   time.Duration `json:"lag,omitempty"`
}

// Bounds of a spec.
const (
	minRate     = 0.001
	maxRate     = 100_000
	maxConns    = 20_000
	maxSessions = 20_000
	maxSize     = 64 << 20
	minInterval = time.Millisecond
)

// DefaultMethod is the embedded app's.
const (
	DefaultUnary  = "/lastcall.app.Echo/Call"
	DefaultStream = "/lastcall.app.Echo/Stream"
	DefaultPush   = "/lastcall.app.Echo/Push"
	DefaultUpload = "/lastcall.app.Echo/Upload"
)

// Validate fills in defaults and finds what can't be.
func (s *Spec) Validate() error {
	if !slices.Contains(Kinds(), s.Kind) {
		return fmt.Errorf("kind %q: want one of %v", s.Kind, Kinds())
	}
	if s.Target == "" {
		return errors.New("target: missing")
	}
	if _, err := s.address(); err != nil {
		return fmt.Errorf("target %q: %w", s.Target, err)
	}
	if s.Kind.Long() {
		if s.Rate != 0 {
			return fmt.Errorf("rate: %s has sessions, not a rate", s.Kind)
		}
		s.Sessions = orElse(s.Sessions, 1)
		s.Interval = orElse(s.Interval, time.Second)
	} else {
		if s.Sessions != 0 || s.Interval != 0 {
			return fmt.Errorf("sessions, interval: %s has a rate, not sessions", s.Kind)
		}
		if s.Rate == 0 {
			s.Rate = 10
		}
		s.Conns = orElse(s.Conns, 10)
	}
	s.Timeout = orElse(s.Timeout, 10*time.Second)
	switch {
	case !s.Kind.Long() && !(s.Rate >= minRate && s.Rate <= maxRate):
		return fmt.Errorf("rate: want %g to %d requests a second", minRate, maxRate)
	case s.Conns < 0 || s.Conns > maxConns:
		return fmt.Errorf("conns: want 1 to %d", maxConns)
	case s.Sessions < 0 || s.Sessions > maxSessions:
		return fmt.Errorf("sessions: want 1 to %d", maxSessions)
	case s.Kind.Long() && s.Interval < minInterval:
		return fmt.Errorf("interval: want %v or more", minInterval)
	case s.Size < 0 || s.Size > maxSize:
		return fmt.Errorf("size: want 0 to %d", maxSize)
	case s.Timeout <= 0:
		return errors.New("timeout: want more than nothing")
	case (s.Ready == "") != (s.Next == ""):
		return errors.New("ready, next: each needs the other")
	case s.Ready != "" && !isURL(s.Ready):
		return fmt.Errorf("ready=%s: want an http URL", s.Ready)
	case s.Next != "" && !isHostPort(s.Next):
		return fmt.Errorf("next=%s: want host:port", s.Next)
	case s.Lag < 0 || s.Lag > 0 && s.Next == "":
		return errors.New("lag: must not be negative, and needs next")
	case !s.modeFits():
		return fmt.Errorf("mode=%s: not for %s: websocket has echo and push, grpc-stream bidi, server and client", s.Mode, s.Kind)
	case s.Over < 0 || s.Over > 0 && (s.Size == 0 || s.Kind != HTTP1 && s.Kind != HTTP1New && s.Kind != HTTP2):
		return errors.New("over: needs an HTTP kind and size, and must not be negative")
	case s.Over >= s.Timeout && s.Over > 0:
		return errors.New("over: must be less than timeout")
	case s.Resume && s.Kind != SSE:
		return fmt.Errorf("resume: %s has no way to; sse has Last-Event-ID", s.Kind)
	case s.Retry != "" && s.Retry != "library":
		return errors.New(`retry: want "library"`)
	case s.Retry != "" && s.Kind.Long():
		return fmt.Errorf("retry: the clients of %s come back by --reconnect", s.Kind)
	}
	return nil
}

func isURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != ""
}

func isHostPort(text string) bool {
	host, port, err := net.SplitHostPort(text)
	n, perr := strconv.ParseUint(port, 10, 16)
	return err == nil && host != "" && perr == nil && n > 0
}

func (s *Spec) modeFits() bool {
	switch s.Mode {
	case "":
		return true
	case ModeEcho, ModePush:
		return s.Kind == WebSocket
	case ModeBidi, ModeServer, ModeClient:
		return s.Kind == GRPCStream
	}
	return false
}

func orElse[T comparable](v, other T) T {
	var zero T
	if v == zero {
		return other
	}
	return v
}

// endpoint is where a load goes.
type endpoint struct {
	addr  string // host:port
	moved *atomic.Bool
	*connects
	next   string // where new connections go once moved is true
	host   string // for SNI and Host
	secure bool
	path   string // with query; gRPC: the method
}

// schemes are those that the kind's URLs may have.
func (s *Spec) schemes() []string {
	switch s.Kind {
	case WebSocket:
		return []string{"ws", "wss", "http", "https"}
	case GRPCUnary, GRPCStream:
		return []string{"grpc", "grpcs", "http", "https"}
	case TCP:
		return []string{"tcp", "tls"}
	case HTTP1, HTTP1New, HTTP2, SSE:
	}
	return []string{"http", "https"}
}

// address takes a URL or host:port, for gRPC also host:port/package.Service/Method.
func (s *Spec) address() (endpoint, error) {
	text := s.Target
	bare := !strings.Contains(text, "://")
	if bare {
		scheme := "http"
		if s.Kind == TCP {
			scheme = "tcp"
		}
		text = scheme + "://" + text
	}
	u, err := url.Parse(text)
	if err != nil {
		return endpoint{}, errors.Unwrap(err)
	}
	e := endpoint{host: u.Hostname(), path: u.RequestURI()}
	port := u.Port()
	switch {
	case !slices.Contains(s.schemes(), u.Scheme):
		return e, fmt.Errorf("scheme %q: %s has %s", u.Scheme, s.Kind, strings.Join(s.schemes(), ", "))
	case bare && port == "":
		return e, errors.New("want host:port, or a URL")
	case s.Kind == TCP && e.path != "/":
		return e, errors.New("want host:port: TCP has no path")
	}
	switch u.Scheme {
	case "http", "ws", "tcp", "grpc":
		port = orElse(port, "80")
	case "https", "wss", "tls", "grpcs":
		port, e.secure = orElse(port, "443"), true
	}
	if e.host == "" {
		return e, errors.New("no host")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return e, fmt.Errorf("port %q", port)
	}
	if s.Kind == GRPCUnary || s.Kind == GRPCStream {
		switch {
		case e.path == "/":
			e.path = s.defaultMethod()
		case strings.Count(e.path, "/") == 2:
		default:
			return e, errors.New("want host:port/package.Service/Method")
		}
	}
	e.addr, e.next, e.moved = net.JoinHostPort(e.host, port), s.Next, new(atomic.Bool)
	e.connects = new(connects)
	return e, nil
}

func (s *Spec) defaultMethod() string {
	switch {
	case s.Kind == GRPCUnary:
		return DefaultUnary
	case s.Mode == ModeServer:
		return DefaultPush
	case s.Mode == ModeClient:
		return DefaultUpload
	}
	return DefaultStream
}

// now is where a new connection goes.
func (e *endpoint) now() string {
	if e.moved.Load() {
		return e.next
	}
	return e.addr
}

// Addr is where the load's connections go.
func (s *Spec) Addr() (string, error) {
	e, err := s.address()
	return e.addr, err
}
