// Package http1 observes HTTP/1.x exchanges (RFC 9112) on a relayed connection: pipelining, interim and early responses,
// chunked bodies with extensions and trailers, bodies that end with the connection, upgrades and CONNECT. It edits only for
// a farewell (Connection: close in a response head), a refusal (503 to a late request) and the polite end of an event stream.
package http1

import (
	"strconv"

	"github.com/lastcall-proxy/lastcall/proxy/observe"
	"github.com/lastcall-proxy/lastcall/proxy/observe/sse"
)

// Reasons for losing track.
const (
	LostHeadTooLarge  = "head_too_large"
	LostBadRequest    = "bad_request"
	LostBadResponse   = "bad_response"
	LostBadChunk      = "bad_chunk"
	LostFraming       = "conflicting_framing"
	LostUnsolicited   = "unsolicited_response"
	LostEarlyTooLarge = "early_data_too_large"
	LostPipeline      = "pipeline_too_deep"
)

const (
	maxEarly    = 64 << 10 // client bytes kept while an upgrade is undecided
	maxPipeline = 1024     // requests without an answer
)

// Options of an observer.
type Options struct {
	// Pool is shared by the observers of one goroutine; nil: the observer has its own.
	Pool *Pool
	// Forwarded is put at the end of every request's head: whole header lines that tell the client's address; empty: none.
	Forwarded []byte
	// Identity is the name of the header that tells clients apart, in lower case; empty: none.
	Identity string
	// RetryAfter is told to refused clients, in seconds; default 1.
	RetryAfter int
	// Upgrade gives the observer of an upgraded stream; nil, or a nil result, leaves it opaque.
	Upgrade func(sink observe.Sink, s observe.Stream, r *observe.Request) observe.Observer
}

// exchange is one request and its response.
type exchange struct {
	stream   observe.Stream // nil once it is done
	kind     observe.Kind
	head     bool // HEAD: the response has no body
	connect  bool
	upgrade  bool // asks for an upgrade
	reqDone  bool
	resDone  bool
	rejected bool
	sse      bool
	told     bool            // its response carries our Connection: close
	request  observe.Request // its head; the slices are this exchange's own and live as long as it
}

// Pool keeps exchanges for reuse by all connections of one goroutine, so that an idle connection holds none.
type Pool struct{ free []*exchange }

// maxPool bounds what a pool keeps.
const maxPool = 1024

func (p *Pool) take() *exchange {
	n := len(p.free)
	if n == 0 {
		return &exchange{}
	}
	e := p.free[n-1]
	p.free = p.free[:n-1]
	r := e.request
	*e = exchange{request: observe.Request{Method: r.Method[:0], Path: r.Path[:0], Authority: r.Authority[:0], UserAgent: r.UserAgent[:0], Identity: r.Identity[:0], Settings: r.Settings[:0]}}
	return e
}

// maxKept is the most that a pooled exchange keeps of one long path.
const maxKept = 2 << 10

func (p *Pool) give(e *exchange) {
	r := &e.request
	if len(p.free) < maxPool && cap(r.Path) <= maxKept && cap(r.Authority) <= maxKept && cap(r.UserAgent) <= maxKept && cap(r.Identity) <= maxKept {
		p.free = append(p.free, e)
	}
}

type mode uint8

const (
	parsing mode = iota
	opaque       // not HTTP, or lost track, or a tunnel: bytes are only counted
	handed       // upgraded: next observes
)

// Observer watches one connection.
type Observer struct {
	sink observe.Sink
	opt  Options

	mode   mode
	proven bool // a whole request line was HTTP/1.x
	req    message
	res    message
	cur    *exchange   // whose request is being read
	queue  []*exchange // without a whole answer yet, oldest first
	status int
	events sse.Scanner
	early  []byte
	next   observe.Observer
	tail   [2]observe.Stream // of an opaque connection, by direction
	start  int               // where the bytes of the message under way begin in this call

	farewell, reject, ending bool
	closing                  bool // nothing further from the client is taken
	holding                  bool
	justLost                 bool // in the call that is under way
	replay                   bool // early bytes are read again: they are out already, no edit can be made
	held                     []byte
	cr                       bool // a CR at the start of a line is held back: the end of the head may follow
	refusal                  []byte
	edits                    []observe.Edit
}

// New makes an observer.
func New(sink observe.Sink, opt Options) *Observer {
	if opt.RetryAfter <= 0 {
		opt.RetryAfter = 1
	}
	if opt.Pool == nil {
		opt.Pool = &Pool{}
	}
	o := &Observer{sink: sink, opt: opt}
	o.req.length, o.res.length = -1, -1
	return o
}

// Data is observe.Observer's.
func (o *Observer) Data(dir observe.Direction, p []byte) []observe.Edit {
	o.edits, o.start = o.edits[:0], 0
	switch {
	case o.mode == handed:
		return o.next.Data(dir, p)
	case o.mode == opaque:
		o.count(dir, len(p))
	case dir == observe.FromClient:
		o.requests(p)
	default:
		o.responses(p)
	}
	if o.justLost {
		o.justLost = false
		o.count(dir, len(p)-o.start)
	}
	return o.result()
}

func (o *Observer) result() []observe.Edit {
	if len(o.edits) == 0 {
		return nil
	}
	return o.edits
}

func (o *Observer) count(dir observe.Direction, n int) {
	if s := o.tail[dir]; s != nil {
		s.Bytes(dir, n)
	}
}

// drop swallows p[off:] of the call that is under way.
func (o *Observer) drop(dir observe.Direction, off, n int) {
	if n > 0 {
		o.edits = append(o.edits, observe.Edit{Dir: dir, Off: off, Drop: n})
	}
}

// lose stops understanding for good.
func (o *Observer) lose(reason string) {
	o.mode, o.justLost = opaque, true
	o.giveBack()
	o.early, o.held, o.req.line, o.res.line = nil, nil, nil, nil
	if n := len(o.queue); n > 0 {
		o.tail = [2]observe.Stream{observe.FromClient: o.queue[n-1].stream, observe.FromApp: o.queue[0].stream}
	}
	o.sink.LostTrack(reason)
}

// notHTTP gives up before anything was lost: the connection never was HTTP/1.
func (o *Observer) notHTTP() {
	o.mode = opaque
	o.giveBack()
	s := o.queue[0].stream
	o.tail = [2]observe.Stream{s, s}
	s.SetKind(observe.TCP)
	s.State(observe.WaitingEither, observe.StageTunnel)
	o.sink.Protocol(observe.TCP)
	o.req.line, o.res.line = nil, nil
}

// EOF is observe.Observer's.
func (o *Observer) EOF(dir observe.Direction) []observe.Edit {
	o.edits = o.edits[:0]
	if o.mode == handed {
		return o.next.EOF(dir)
	}
	if dir == observe.FromClient {
		o.giveBack()
	}
	if o.mode == parsing && dir == observe.FromApp && o.res.state == stUntilClose {
		o.answered(0)
	}
	return o.result()
}

// Idle is observe.Observer's.
func (o *Observer) Idle() bool {
	switch o.mode {
	case handed:
		return o.next.Idle()
	case opaque:
		return false
	case parsing:
	}
	return len(o.queue) == 0 && o.cur == nil && o.req.atStart() && o.res.atStart()
}

// Tell is observe.Observer's.
func (o *Observer) Tell(order observe.Order) []observe.Edit {
	o.edits = o.edits[:0]
	switch order {
	case observe.OrderFarewell:
		o.farewell = true
	case observe.OrderReject:
		o.reject = true
	case observe.OrderServe:
		o.farewell, o.reject = false, false
	case observe.OrderEnd:
		o.ending = true
		o.start = 0
		if o.mode == parsing {
			o.endEvents(0)
		}
	}
	if o.mode == handed {
		return o.next.Tell(order)
	}
	return o.result()
}

// release takes an exchange back when neither flow needs it.
func (o *Observer) release(e *exchange) {
	if e.reqDone && e.resDone {
		o.opt.Pool.give(e)
	}
}

// refuse answers a late request, which must be the oldest without an answer, at off of the app's flow.
func (o *Observer) refuse(off int) {
	if len(o.queue) == 0 || !o.queue[0].rejected {
		return
	}
	e := o.queue[0]
	const body = "server is shutting down\n"
	b := o.refusal[:0]
	b = append(b, "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: "...)
	b = strconv.AppendInt(b, int64(len(body)), 10)
	b = append(b, "\r\nRetry-After: "...)
	b = strconv.AppendInt(b, int64(o.opt.RetryAfter), 10)
	b = append(b, "\r\nConnection: close\r\n\r\n"...)
	if !e.head {
		b = append(b, body...)
	}
	o.refusal = b
	o.edits = append(o.edits, observe.Edit{Dir: observe.FromApp, Off: off, Insert: b})
	e.stream.Status(503)
	o.sink.Farewell(true)
	e.stream.Done(observe.Outcome{Verdict: observe.Rejected})
	o.queue = o.queue[:0]
	o.sink.CloseAfter()
}

// Close passes on that the connection is closed.
func (o *Observer) Close() {
	if c, ok := o.next.(interface{ Close() }); ok {
		c.Close()
	}
}
