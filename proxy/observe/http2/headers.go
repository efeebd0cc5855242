package http2

import (
	"errors"

	"github.com/lastcall-proxy/lastcall/proxy/observe"
	"github.com/lastcall-proxy/lastcall/proxy/observe/grpc"
)

// headersFrame handles the header of a HEADERS or PUSH_PROMISE frame. False: track was lost.
func (o *Observer) headersFrame(dir observe.Direction) bool {
	f := &o.flows[dir]
	if f.skip == 0 {
		f.pad = 0
	}
	// Blocks are held back where they may have to be taken away or written anew.
	keep := f.rewrite || o.swallows(f)
	if dir == observe.FromClient && o.fresh(f) {
		if o.full() {
			o.lose(LostStreams)
			return false
		}
		keep = keep || o.reject || f.id > o.limit
		f.str = o.begin(f.id, observe.HTTP2)
		o.highest = f.id
	}
	if !keep || !f.hold { // not held: its first bytes were out before the reason came
		o.pass(dir)
	}
	return true
}

// swallows tells that a frame's stream was ended by us, or refused.
func (o *Observer) swallows(f *flow) bool {
	return f.str != nil && f.str.gone || f.str == nil && f.id&1 == 1 && f.id > o.limit
}

// fresh tells that the frame opens a client's stream.
func (o *Observer) fresh(f *flow) bool { return f.id&1 == 1 && f.id > o.highest }

// blockEnd handles a whole header block.
func (o *Observer) blockEnd(dir observe.Direction, block []byte) *stream {
	f := &o.flows[dir]
	sc := &o.opt.Pool.scratch
	h := &sc.head
	h.clear(f.rewrite, o.opt.Identity)
	if err := f.dec.decode(block, sc, h); err != nil {
		reason := LostHeaders
		if errors.Is(err, errTableSize) {
			reason = LostTable
		}
		o.lose(reason)
		return nil
	}
	s := o.streams[f.blockID]
	if h.tooLong() && !o.tooLong(dir, s) {
		return nil
	}
	end := f.blockFlags&flagEndStream != 0
	switch {
	case f.blockType == typePushPromise:
		o.promise(s, h)
	case s == nil:
	case dir == observe.FromClient:
		if !o.requestBlock(s, h) {
			return nil // refused
		}
	default:
		o.responseBlock(s, h)
	}
	if f.hold { // still: to be taken away, or written anew
		switch {
		case s != nil && s.gone || f.blockID&1 == 1 && f.blockID > o.limit:
			o.swallow(dir)
			o.startRewriting(dir)
		case f.rewrite:
			o.swallow(dir)
			o.rewrite(dir, h)
		default:
			o.pass(dir)
		}
	}
	if s != nil && end && f.blockType == typeHeaders {
		f.str = s
		o.halfClosed(s, dir)
	}
	if s != nil && o.ending {
		o.endStream(s)
	}
	return s
}

// tooLong handles a list over its limit. In a flow that is relayed as it came, track is lost. Where it is rewritten the
// fields are not at hand any more: the stream is reset both ways, and the table stays right.
func (o *Observer) tooLong(dir observe.Direction, s *stream) bool {
	f := &o.flows[dir]
	if !f.rewrite {
		o.lose(LostListSize)
		return false
	}
	o.swallow(dir)
	if s != nil && !s.gone {
		o.resetBoth(s, codeCancel, observe.Outcome{Verdict: observe.Ended, Reason: "header list too long to be rewritten"})
	}
	return false
}

// requestBlock handles a client's header block: a request's head, or its trailers. False: the stream was refused.
func (o *Observer) requestBlock(s *stream, h *head) bool {
	f := &o.flows[observe.FromClient]
	if s.gone || s.rec == nil || f.blockID <= o.passed {
		return true
	}
	r := &h.request
	r.Kind = observe.HTTP2
	defer func() { s.wants = r.Kind }()
	switch {
	case string(r.Method) == "CONNECT" && string(h.protocol) == "websocket":
		r.Kind, s.connect = observe.WebSocket, true
	case string(r.Method) == "CONNECT":
		r.Kind, s.connect = observe.Tunnel, true
	case h.dialect != grpc.None:
		r.Kind, s.dialect = observe.GRPC, h.dialect
		s.kind = observe.GRPC
		s.rec.SetKind(observe.GRPC)
	}
	if s.kind == observe.GRPC && string(r.Path) == healthWatch {
		s.watch = true
		o.watches++
	}
	s.rec.Head(r)
	if f.hold && (s.id > o.limit || o.reject && !o.sink.Admit(r)) {
		o.refuse(s)
		return false
	}
	o.passed, s.headed = s.id, true
	return true
}

// responseBlock handles the app's: interim heads, the final one, or trailers.
func (o *Observer) responseBlock(s *stream, h *head) {
	if s.rec == nil || s.gone {
		return
	}
	if h.status >= 100 && h.status < 200 && h.status != 101 {
		return
	}
	if h.grpcStatus >= 0 {
		s.rec.GRPCStatus(h.grpcStatus)
	}
	if s.resHead {
		return // trailers
	}
	s.resHead, o.resets = true, 0
	s.rec.Status(max(h.status, 0))
	switch {
	case s.connect && h.status/100 == 2:
		s.tunnel = true
		o.upgraded(s)
	case s.connect:
		s.connect = false
	case s.dialect == grpc.None && h.dialect != grpc.None:
		s.dialect = h.dialect
	}
	o.state(s)
}

// upgraded makes a tunnel of a CONNECT that was accepted.
func (o *Observer) upgraded(s *stream) {
	s.kind = observe.Tunnel
	if s.wants == observe.WebSocket {
		s.kind = observe.WebSocket
	}
	s.rec.SetKind(s.kind)
	s.turn, s.stage = observe.WaitingEither, observe.StageTunnel
	s.rec.State(s.turn, s.stage)
	if s.kind == observe.WebSocket && o.opt.WebSocket != nil {
		o.openSocket(s)
	}
}

// promise opens a pushed stream: its request is the app's.
func (o *Observer) promise(parent *stream, h *head) {
	f := &o.flows[observe.FromApp]
	id := f.promised
	if id == 0 || id&1 == 1 || o.streams[id] != nil {
		o.lose(LostFrame)
		return
	}
	if o.full() {
		o.lose(LostStreams)
		return
	}
	if parent != nil && parent.gone {
		s := o.opt.Pool.take()
		s.id, s.gone, s.reqDone = id, true, true
		o.streams[id] = s
		o.put(observe.FromClient, appendReset(nil, id, codeCancel))
		return
	}
	s := o.begin(id, observe.HTTP2)
	h.request.Kind = observe.HTTP2
	s.rec.Head(&h.request)
	s.headed, s.reqDone = true, true
	o.state(s)
}

// startRewriting makes the flow's receiver forget its table: blocks that it did not get may have changed the sender's.
func (o *Observer) startRewriting(dir observe.Direction) { o.flows[dir].rewrite = true }

// rewrite puts a block in that was swallowed, as literals.
func (o *Observer) rewrite(dir observe.Direction, h *head) {
	f := &o.flows[dir]
	var priority []byte
	if f.blockType == typeHeaders && f.blockFlags&flagPriority != 0 {
		priority = f.priority[:]
	}
	block := o.literal(f, h.fields)
	if f.blockType == typePushPromise {
		f.pending = appendPromise(f.pending, f.blockID, f.promised, block)
		return
	}
	f.pending = appendBlock(f.pending, f.blockID, f.blockFlags, priority, block)
}

// literal makes a block of literals; the first one of a flow tells its receiver to keep no table.
func (o *Observer) literal(f *flow, fields []byte) []byte {
	f.rewrite = true
	if f.told {
		return fields
	}
	f.told = true
	return append([]byte{noTable}, fields...)
}
