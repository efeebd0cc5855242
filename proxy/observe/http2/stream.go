package http2

import (
	"github.com/lastcall-proxy/lastcall/proxy/observe"
	"github.com/lastcall-proxy/lastcall/proxy/observe/grpc"
)

// stream is one stream as far as its account needs.
type stream struct {
	rec     observe.Stream // nil: ended, or never counted
	id      uint32
	kind    observe.Kind
	dialect grpc.Dialect
	turn    observe.Waiting
	stage   observe.Stage
	scan    [2]grpc.Scanner
	window  [2]int32 // what each side may still send on it
	socket  observe.Observer

	headed  bool    // its request's head was passed on
	reqDone bool    // the client has ended its side
	resDone bool    // the app has
	resHead bool    // its final head was seen
	tunnel  bool    // CONNECT with a 2xx
	connect bool    // asks for a tunnel
	gone    bool    // ended by us: what still comes for it is swallowed
	watch   bool    // a gRPC health watch: it goes on for ever, and holds no farewell
	leaving bool    // a WebSocket that is being closed
	unread  bool    // its WebSocket observer has lost track
	said    [2]bool // our Close went into this direction
	wants   observe.Kind
}

// begin opens a stream's record.
func (o *Observer) begin(id uint32, k observe.Kind) *stream {
	s := o.opt.Pool.take()
	s.id, s.kind, s.rec = id, k, o.sink.Begin(k)
	s.window = [2]int32{int32(o.flows[0].initial), int32(o.flows[1].initial)}
	s.turn, s.stage = observe.WaitingClient, observe.StageRequest
	o.streams[id] = s
	o.open++
	o.opt.Pool.open++
	return s
}

// state works out whose turn it is, and says so when that has changed.
func (o *Observer) state(s *stream) {
	if s.rec == nil {
		return
	}
	w, g := observe.WaitingApp, observe.StageResponse
	switch {
	case s.tunnel:
		w, g = observe.WaitingEither, observe.StageTunnel
	case !s.reqDone && s.resDone:
		w, g = observe.WaitingClient, observe.StageRequest
	case !s.reqDone && s.resHead:
		w, g = observe.WaitingEither, observe.StageRequest
	case !s.reqDone:
		w, g = observe.WaitingClient, observe.StageRequest
	}
	// A side that gives no window does not read: whose turn it is then is its turn.
	switch {
	case s.resHead && !s.resDone && (s.window[observe.FromApp] <= 0 || o.flows[observe.FromApp].window <= 0):
		w = observe.WaitingClient
	case !s.reqDone && (s.window[observe.FromClient] <= 0 || o.flows[observe.FromClient].window <= 0):
		w = observe.WaitingApp
	}
	if w != s.turn || g != s.stage {
		s.turn, s.stage = w, g
		s.rec.State(w, g)
	}
}

// halfClosed notes that a side has ended its part.
func (o *Observer) halfClosed(s *stream, dir observe.Direction) {
	if dir == observe.FromClient {
		s.reqDone = true
	} else {
		s.resDone = true
	}
	if s.rec == nil {
		return
	}
	if s.reqDone && s.resDone {
		if s.tunnel {
			o.done(s, observe.Outcome{Verdict: observe.Completed, By: dir.Other()})
			return
		}
		o.done(s, observe.Outcome{Verdict: observe.Completed, By: observe.FromApp})
		return
	}
	s.rec.HalfClosed(dir)
	o.state(s)
}

// done ends a stream's record.
func (o *Observer) done(s *stream, out observe.Outcome) {
	if s.rec == nil {
		return
	}
	for i := range o.flows {
		if o.flows[i].str == s {
			o.tellBytes(observe.Direction(i))
		}
	}
	s.rec.Done(out)
	s.rec = nil
	if s.watch {
		o.watches--
	}
	o.open--
	o.opt.Pool.open--
}

// finish forgets a stream of which nothing is to come.
func (o *Observer) finish(s *stream) {
	if s.rec == nil && s.reqDone && s.resDone {
		o.forget(s)
	}
}

// forget takes a stream off the table. The other flow may stand inside a frame of it.
func (o *Observer) forget(s *stream) {
	for i := range o.flows {
		if o.flows[i].str == s {
			o.flows[i].str = nil
		}
	}
	delete(o.streams, s.id)
	o.opt.Pool.give(s)
}

// full tells that no further stream can be counted.
func (o *Observer) full() bool {
	return len(o.streams) >= maxStreams || o.opt.Pool.open >= maxAllStreams
}

// Close gives up what the observer still holds: its connection is closed.
func (o *Observer) Close() {
	o.opt.Pool.open -= o.open
	o.open, o.watches, o.streams, o.lost = 0, 0, nil, true
}
