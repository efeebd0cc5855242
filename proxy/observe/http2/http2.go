// Package http2 observes HTTP/2 connections (RFC 9113): it walks the frames of both flows, decodes their header blocks
// (RFC 7541), and gives every stream a record: an ordinary exchange, a gRPC call, or a WebSocket over an extended CONNECT
// (RFC 8441).
//
// Frames are relayed as they came: the app's own settings, windows and HPACK state are what the client sees. Edits are made
// between frames only, never before the app's first SETTINGS, and only for a farewell (GOAWAY, PING), a refused late
// stream, or a polite end. An edit that takes a header block away, or puts one in, turns that flow to rewriting: its
// receiver is told to keep no table, and every later block reaches it as literals.
package http2

import (
	"math/rand/v2"

	"github.com/lastcall-proxy/lastcall/proxy/observe"
)

// Reasons for losing track.
const (
	LostPreface   = "http2_bad_preface"
	LostFrame     = "http2_bad_frame"
	LostHeaders   = "http2_bad_header_block"
	LostTable     = "http2_header_table_too_large"
	LostListSize  = "http2_header_list_too_large"
	LostStreams   = "http2_too_many_streams"
	LostFlood     = "http2_flood"
	LostWebSocket = "websocket_bad_frame"
)

// Bounds that protect us, not the app: beyond them track is lost and the traffic goes on.
const (
	maxBlock         = 64 << 10 // bytes of one header block
	maxContinuations = 128      // frames of one header block
	maxStreams       = 10_000   // open at once on a connection
	maxAllStreams    = 100_000  // open at once on all connections of a Pool
	maxRun           = 10_000   // control frames, or streams reset unanswered, in a row
)

// Options of an observer.
type Options struct {
	// Pool is shared by the observers of one goroutine; nil: the observer has its own.
	Pool *Pool
	// WebSocket gives the observer of a WebSocket over an extended CONNECT; nil leaves it a tunnel.
	WebSocket func(sink observe.Sink, s observe.Stream) observe.Observer
	// Identity is the name of the header that tells clients apart, in lower case; empty: none.
	Identity string
	// Now reads the clock of whoever owns the observer, in nanoseconds; nil: PINGs are not timed.
	Now func() int64
	// Random gives the payload of our PING; nil: math/rand/v2.
	Random func() uint64
}

// Pool keeps what observers of one goroutine need for a moment, and streams for reuse.
type Pool struct {
	free    []*stream
	open    int // streams of all observers that have a record
	scratch scratch
}

// maxPool bounds what a pool keeps.
const maxPool = 1024

func (p *Pool) take() *stream {
	if n := len(p.free); n > 0 {
		s := p.free[n-1]
		p.free = p.free[:n-1]
		*s = stream{}
		return s
	}
	return &stream{}
}

func (p *Pool) give(s *stream) {
	s.rec, s.socket = nil, nil
	if len(p.free) < maxPool {
		p.free = append(p.free, s)
	}
}

// Observer watches one connection.
type Observer struct {
	sink observe.Sink
	opt  Options

	lost    bool
	careful bool // an edit may be needed: a frame's header is held back until it is whole
	flows   [2]flow
	streams map[uint32]*stream
	open    int    // of streams: those that have a record
	watches int    // of those: gRPC health watches
	highest uint32 // client stream seen
	passed  uint32 // highest client stream that was forwarded
	limit   uint32 // streams above it are refused; set by our own last GOAWAY
	wire    uint32 // lowest last id that the client was told, by whomever

	run    int // control frames, or unanswered streams reset, in a row
	resets int

	farewell, reject, ending bool
	announced                bool // our first GOAWAY is out, or need not go out
	endLater                 bool // a stream could not be ended inside a frame
	wantFinal                bool // it is to go out as soon as it may
	final                    bool // our last GOAWAY is out, or need not go out
	closing                  bool // nothing may follow
	ping                     uint64
	pings                    uint8 // of ours, unanswered
	answered                 bool  // our PING came back
	appPings                 [4]uint64
	appPingCount             int
	trips                    [2]trip // by the side that answers

	edits []observe.Edit
	// Of the call that is under way.
	feeding  int8 // the flow that is being fed; -1: none
	at       int  // offset up to which its bytes are settled
	holdFrom int
	dropFrom int
}

// New makes an observer of a connection whose client begins with Preface.
func New(sink observe.Sink, opt Options) *Observer {
	if opt.Pool == nil {
		opt.Pool = &Pool{}
	}
	if opt.Random == nil {
		opt.Random = rand.Uint64
	}
	o := &Observer{sink: sink, opt: opt, limit: maxID, wire: maxID + 1, streams: make(map[uint32]*stream), feeding: -1}
	for i := range o.flows {
		o.flows[i].window, o.flows[i].initial = defaultWindow, defaultWindow
	}
	return o
}

// NewUpgraded makes an observer of a connection that an HTTP/1 request upgraded to h2c: s is that request's stream, which
// becomes stream 1, whole on the client's side; settings are those of its HTTP2-Settings field (RFC 7540 section 3.2).
func NewUpgraded(sink observe.Sink, s observe.Stream, settings []byte, opt Options) *Observer {
	o := New(sink, opt)
	for ; len(settings) >= 6; settings = settings[6:] {
		o.setting(observe.FromClient, settings)
	}
	st := o.opt.Pool.take()
	st.id, st.rec, st.headed, st.reqDone, st.kind = 1, s, true, true, observe.HTTP2
	st.window = [2]int32{int32(o.flows[0].initial), int32(o.flows[1].initial)}
	o.streams[1] = st
	o.open, o.highest, o.passed = 1, 1, 1
	o.opt.Pool.open++
	s.SetKind(observe.HTTP2)
	st.turn = observe.WaitingApp
	s.State(observe.WaitingApp, observe.StageResponse)
	return o
}

// Data is observe.Observer's.
func (o *Observer) Data(dir observe.Direction, p []byte) []observe.Edit {
	if o.lost {
		return nil
	}
	o.edits = o.edits[:0]
	o.feeding, o.at, o.holdFrom, o.dropFrom = int8(dir), 0, 0, 0
	o.walk(dir, p)
	o.feeding = -1
	if len(o.edits) == 0 {
		return nil
	}
	return o.edits
}

// EOF is observe.Observer's: what was held back for a decision that will not come goes out.
func (o *Observer) EOF(dir observe.Direction) []observe.Edit {
	o.edits = o.edits[:0]
	f := &o.flows[dir]
	if f.hold && len(f.held) > 0 {
		o.edits = append(o.edits, observe.Edit{Dir: dir, Insert: f.held})
		f.hold, f.held = false, nil
	}
	return o.edits
}

// Idle is observe.Observer's.
func (o *Observer) Idle() bool {
	return !o.lost && o.open == 0 && o.flows[0].atFrame() && o.flows[1].atFrame()
}

func (o *Observer) lose(reason string) {
	if o.lost {
		return
	}
	o.lost = true
	if o.flows[0].rewrite || o.flows[1].rewrite {
		// What is encoded can't be put into the receiver's terms any more.
		o.edits = append(o.edits, observe.Edit{Dir: observe.FromApp, Off: o.at, Insert: appendGoAway(nil, o.passed, codeInternalError)})
		o.sink.Broken(reason)
		return
	}
	o.sink.LostTrack(reason)
}
