package http1

import (
	"bytes"
	"encoding/base64"

	"github.com/lastcall-proxy/lastcall/proxy/observe"
)

// requests reads the client's flow.
func (o *Observer) requests(p []byte) {
	for i := 0; i < len(p) && o.mode == parsing; {
		if o.closing && o.cur == nil {
			if !o.replay {
				o.drop(observe.FromClient, i, len(p)-i)
			}
			return
		}
		m := &o.req
		switch m.state {
		case stStart, stHeader, stTrailer:
			if m.state == stStart && m.size == 0 {
				if o.proven && (p[i] == '\r' || p[i] == '\n') { // empty lines before a request line (RFC 9112 section 2.2)
					i++
					continue
				}
				o.begin()
				o.start = i
			}
			o.forward(m, p, i)
			line, n := m.takeLine(p[i:])
			i += n
			if m.size > maxHead {
				o.unhold(p, o.start, i)
				o.tooLarge()
				return
			}
			if line != nil && !o.requestLine(line, p, o.start, i) {
				return
			}
		case stChunkSize, stChunkEnd:
			line, n := m.takeLine(p[i:])
			i += n
			if m.size > maxChunkLine || (line != nil && !m.chunkLine(line)) {
				o.lose(LostBadChunk)
				return
			}
		case stBody, stChunkData:
			n := int(min(m.left, uint64(len(p)-i)))
			m.left -= uint64(n)
			i += n
			if m.left == 0 {
				if m.state == stBody {
					o.requestDone(i - o.start)
					o.start = i
				} else {
					m.state, m.size = stChunkEnd, 0
				}
			}
		case stUndecided:
			if len(o.early)+len(p)-i > maxEarly {
				o.lose(LostEarlyTooLarge)
				return
			}
			o.early = append(o.early, p[i:]...)
			i = len(p)
		case stUntilClose:
			return
		}
		if m.state == stStart && o.cur == nil {
			o.start = i
		}
	}
	if o.mode != parsing {
		return
	}
	if o.holding {
		o.held = append(o.held, p[o.start:]...)
		o.drop(observe.FromClient, o.start, len(p)-o.start)
	}
	if o.cur != nil && o.cur.stream != nil {
		o.cur.stream.Bytes(observe.FromClient, len(p)-o.start)
	}
}

// chunkLine reads the line in front of a chunk, or behind one.
func (m *message) chunkLine(line []byte) bool {
	m.size = 0
	if m.state == stChunkEnd {
		m.state = stChunkSize
		return len(line) == 0
	}
	n, ok := chunkSize(line)
	m.left = n
	if n == 0 {
		m.state = stTrailer
	} else {
		m.state = stChunkData
	}
	return ok
}

// begin opens a request: its first byte was seen.
func (o *Observer) begin() {
	e := o.opt.Pool.take()
	e.kind = observe.HTTP1
	e.stream = o.sink.Begin(observe.HTTP1)
	e.stream.State(observe.WaitingClient, observe.StageRequest)
	o.queue = append(o.queue, e)
	o.cur = e
	o.holding = o.reject && !o.replay
	o.held = o.held[:0]
}

// unhold lets held bytes go after all: they are not a request that could be refused.
func (o *Observer) unhold(p []byte, start, end int) {
	if o.holding {
		o.holding = false
		o.held = append(o.held, p[start:end]...)
		o.edits = append(o.edits, observe.Edit{Dir: observe.FromClient, Off: start, Drop: end - start, Insert: o.held})
	}
}

// tooLarge gives up on a head over its limit.
func (o *Observer) tooLarge() {
	if !o.proven && len(o.queue) > 0 {
		o.notHTTP()
		return
	}
	o.lose(LostHeadTooLarge)
}

// requestLine handles one whole line of a request's head or trailers, which ends at end. False stops the reading of p.
func (o *Observer) requestLine(line, p []byte, start, end int) bool {
	m := &o.req
	switch {
	case m.state == stStart:
		method, target, minor, ok := requestLine(line)
		if !ok {
			return o.badRequest(p, start, end)
		}
		if !o.proven {
			o.proven = true
			o.sink.Protocol(observe.HTTP1)
		}
		m.state, m.http10 = stHeader, minor == 0
		o.cur.head = string(method) == "HEAD"
		o.cur.connect = string(method) == "CONNECT"
		o.cur.request.Method = append(o.cur.request.Method, method...)
		o.target(target)
	case m.state == stTrailer:
		if len(line) == 0 {
			o.requestDone(end - start)
		}
	case len(line) > 0:
		name, value, ok := field(line)
		if !ok {
			o.unhold(p, start, end)
			o.lose(LostBadRequest)
			return false
		}
		m.framing(name, value)
		if id := o.opt.Identity; id != "" && len(o.cur.request.Identity) == 0 && foldEqual(name, id) {
			o.cur.request.Identity = append(o.cur.request.Identity[:0], value...)
		}
		switch name[0] | 0x20 {
		case 'h':
			switch {
			case len(o.cur.request.Authority) == 0 && foldEqual(name, "host"):
				o.cur.request.Authority = append(o.cur.request.Authority, value...)
			case foldEqual(name, "http2-settings"):
				o.cur.request.Settings, _ = base64.RawURLEncoding.AppendDecode(o.cur.request.Settings[:0], value) // RFC 7540 section 3.2.1; the app judges it
			}
		case 'u':
			switch {
			case foldEqual(name, "user-agent"):
				o.cur.request.UserAgent = append(o.cur.request.UserAgent[:0], value...)
			case foldEqual(name, "upgrade"):
				o.cur.kind = observe.Tunnel
				switch {
				case foldEqual(value, "websocket"):
					o.cur.kind = observe.WebSocket
				case foldEqual(value, "h2c"):
					o.cur.kind = observe.HTTP2
				}
			}
		}
	default:
		return o.requestHead(p, start, end)
	}
	return true
}

// badRequest handles a start line that is none.
func (o *Observer) badRequest(p []byte, start, end int) bool {
	if o.holding {
		o.holding, o.closing = false, true
		s := o.cur.stream
		s.SetKind(observe.TCP)
		s.Done(observe.Outcome{Verdict: observe.Rejected})
		o.queue, o.cur = o.queue[:0], nil
		o.drop(observe.FromClient, start, len(p)-start)
		o.sink.CloseAfter()
		return false
	}
	if !o.proven && len(o.queue) > 0 {
		o.cur.stream.Bytes(observe.FromClient, len(p)-start)
		o.notHTTP()
		return false
	}
	o.unhold(p, start, end)
	o.lose(LostBadRequest)
	return false
}

// target takes path and authority from a request target (RFC 9112 section 3.2).
func (o *Observer) target(t []byte) {
	r := &o.cur.request
	if o.cur.connect {
		r.Authority = append(r.Authority, t...)
		return
	}
	if i := bytes.Index(t, []byte("://")); i > 0 && t[0] != '/' { // absolute-form
		t = t[i+3:]
		j := bytes.IndexByte(t, '/')
		if j < 0 {
			j = len(t)
		}
		r.Authority = append(r.Authority, t[:j]...)
		t = t[j:]
	}
	if i := bytes.IndexByte(t, '?'); i >= 0 {
		t = t[:i]
	}
	r.Path = append(r.Path, t...)
}

// requestHead handles the end of a request's head at end.
func (o *Observer) requestHead(p []byte, start, end int) bool {
	m, e := &o.req, o.cur
	if m.conflict || (m.encoded && (m.length >= 0 || !m.chunked)) {
		o.unhold(p, start, end)
		o.lose(LostFraming)
		return false
	}
	e.upgrade = e.connect || (m.upgrade && e.kind != observe.HTTP1)
	if !m.upgrade {
		e.kind = observe.HTTP1
	}
	if e.connect {
		e.kind = observe.Tunnel
	}
	r := &e.request
	r.Kind = e.kind
	if e.stream != nil { // nil when the app has answered before the head was whole
		e.stream.Head(r)
	}
	if o.holding {
		if !o.sink.Admit(r) {
			e.stream.Bytes(observe.FromClient, len(p)-start)
			o.holding, o.closing, e.rejected = false, true, true
			e.reqDone = true
			o.cur = nil
			m.reset()
			o.drop(observe.FromClient, start, len(p)-start)
			o.refuse(0)
			return false
		}
		o.unhold(p, start, end)
	}
	switch {
	case e.connect:
		o.requestDone(end - start)
	case m.chunked:
		m.state, m.size = stChunkSize, 0
	case m.length > 0:
		m.state, m.left = stBody, uint64(m.length)
	default:
		o.requestDone(end - start)
	}
	return o.mode == parsing
}

// requestDone handles the end of a request; n of its bytes are in the call that is under way.
func (o *Observer) requestDone(n int) {
	e := o.cur
	e.reqDone = true
	if e.stream != nil {
		e.stream.Bytes(observe.FromClient, n)
		e.stream.State(observe.WaitingApp, observe.StageResponse)
	}
	o.cur = nil
	o.req.reset()
	if e.upgrade && !e.resDone {
		o.req.state = stUndecided
	}
	o.release(e)
	if len(o.queue) > maxPipeline {
		o.lose(LostPipeline)
	}
}
