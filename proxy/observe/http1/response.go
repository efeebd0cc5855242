package http1

import (
	"bytes"

	"github.com/lastcall-proxy/lastcall/proxy/observe"
	"github.com/lastcall-proxy/lastcall/proxy/observe/sse"
)

var connectionClose = []byte("Connection: close\r\n")

// responses reads the app's flow.
func (o *Observer) responses(p []byte) {
	for i := 0; i < len(p) && o.mode == parsing; {
		if len(o.queue) == 0 || o.queue[0].rejected {
			o.unsolicited(p[i:], i)
			return
		}
		m, e := &o.res, o.queue[0]
		switch m.state {
		case stStart, stHeader, stTrailer:
			at, fresh := i, len(m.line) == 0
			if m.state == stStart && m.size == 0 && !o.proven && p[i] != 'H' {
				o.notHTTP()
				o.count(observe.FromApp, len(p))
				return
			}
			line, n := m.takeLine(p[i:])
			i += n
			if m.size > maxHead {
				o.lose(LostHeadTooLarge)
				return
			}
			if line == nil {
				continue
			}
			if m.state == stTrailer {
				if len(line) == 0 {
					e.stream.Bytes(observe.FromApp, i-o.start)
					o.answered(i)
					o.start = i
				}
				continue
			}
			if !o.responseLine(line, p, at, i, fresh) {
				return
			}
			if len(o.queue) == 0 || o.queue[0] != e {
				o.start = i
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
			o.body(e, p[i:i+n])
			m.left -= uint64(n)
			i += n
			if m.left == 0 {
				if m.state == stChunkData {
					m.state, m.size = stChunkEnd, 0
				} else {
					e.stream.Bytes(observe.FromApp, i-o.start)
					o.answered(i)
					o.start = i
				}
			}
		case stUntilClose:
			o.body(e, p[i:])
			i = len(p)
		case stUndecided:
			return
		}
		if o.ending && o.endEvents(i) {
			o.drop(observe.FromApp, i, len(p)-i)
			return
		}
	}
	if o.mode == parsing && len(o.queue) > 0 && o.queue[0].stream != nil {
		o.queue[0].stream.Bytes(observe.FromApp, len(p)-o.start)
	}
}

// unsolicited handles app bytes that no request waits for.
func (o *Observer) unsolicited(p []byte, off int) {
	if o.closing { // behind the last answer that may go out
		o.drop(observe.FromApp, off, len(p))
		return
	}
	o.lose(LostUnsolicited)
}

// responseLine handles a whole line of a response's head, p[at:end] being its part in this call. False stops the reading.
func (o *Observer) responseLine(line, p []byte, at, end int, fresh bool) bool {
	m, e := &o.res, o.queue[0]
	if m.state == stStart {
		code, minor, ok := statusLine(line)
		if !ok {
			if !o.proven {
				o.notHTTP()
				o.count(observe.FromApp, len(p))
				return false
			}
			o.lose(LostBadResponse)
			return false
		}
		o.status = code
		m.state, m.http10 = stHeader, minor == 0
		if o.mayTell(e) {
			if whole, says := saysClose(p[end:]); whole && says {
				return true // the app says it by itself
			}
			o.tell(e, end)
		}
		return true
	}
	if len(line) > 0 {
		name, value, ok := field(line)
		if !ok {
			o.lose(LostBadResponse)
			return false
		}
		m.framing(name, value)
		if o.status >= 200 && name[0]|0x20 == 'c' && foldEqual(name, "content-type") && isEventStream(value) {
			e.sse = true
		}
		return true
	}
	if o.mayTell(e) && !m.close && fresh {
		o.tell(e, at)
	}
	return o.responseHead(p, end)
}

// mayTell says whether the response that is being read may carry our farewell: it is final, nothing is pipelined behind it,
// and it does not hand the connection over.
func (o *Observer) mayTell(e *exchange) bool {
	return o.farewell && !e.told && len(o.queue) == 1 && o.status >= 200 && (!e.connect || o.status >= 300)
}

func (o *Observer) tell(e *exchange, off int) {
	e.told, o.closing = true, true
	o.edits = append(o.edits, observe.Edit{Dir: observe.FromApp, Off: off, Insert: connectionClose})
	o.sink.Farewell(true)
}

// saysClose looks ahead for Connection: close in the rest of a head.
func saysClose(p []byte) (whole, says bool) {
	var m message
	for {
		line, n := m.takeLine(p)
		if line == nil {
			return false, false
		}
		if len(line) == 0 {
			return true, m.close
		}
		if name, value, ok := field(line); ok && name[0]|0x20 == 'c' && foldEqual(name, "connection") {
			m.connection(value)
		}
		p = p[n:]
	}
}

func isEventStream(v []byte) bool {
	const want = "text/event-stream"
	return len(v) >= len(want) && foldEqual(v[:len(want)], want) && (len(v) == len(want) || v[len(want)] == ';' || v[len(want)] == ' ')
}

// responseHead handles the end of a response's head at end.
func (o *Observer) responseHead(p []byte, end int) bool {
	m, e := &o.res, o.queue[0]
	if o.status < 200 && o.status != 101 { // interim: the answer is still to come
		m.reset()
		return true
	}
	e.stream.Status(o.status)
	if (o.status == 101 && e.upgrade) || (e.connect && o.status < 300) {
		o.handOver(e, p, end)
		return false
	}
	if o.status == 101 {
		o.lose(LostBadResponse)
		return false
	}
	if !m.persists() && !e.told {
		o.sink.Farewell(false)
	}
	e.upgrade = false
	o.decided()
	if o.mode != parsing {
		return false
	}
	if m.conflict {
		o.lose(LostFraming)
		return false
	}
	bodyless := e.head || o.status == 204 || o.status == 304
	switch {
	case bodyless:
	case m.encoded && m.chunked:
		m.state, m.size = stChunkSize, 0
	case m.encoded || m.length < 0:
		m.state = stUntilClose
	case m.length > 0:
		m.state, m.left = stBody, uint64(m.length)
	}
	if e.sse && !bodyless {
		e.stream.SetKind(observe.SSE)
		o.events = sse.Scanner{}
	}
	if m.state == stHeader {
		e.stream.Bytes(observe.FromApp, end)
		o.answered(end)
	}
	return o.mode == parsing
}

// decided reads again what the client sent while an upgrade was undecided: the answer was no.
func (o *Observer) decided() {
	if o.req.state != stUndecided {
		return
	}
	o.req.reset()
	early := o.early
	o.early = nil
	if len(early) > 0 {
		o.replay = true
		o.requests(early)
		o.replay = false
	}
}

// handOver gives an upgraded connection to its observer, or leaves it opaque.
func (o *Observer) handOver(e *exchange, p []byte, end int) {
	s := e.stream
	s.SetKind(e.kind)
	o.sink.Protocol(e.kind)
	s.State(observe.WaitingEither, observe.StageTunnel)
	s.Bytes(observe.FromApp, end)
	o.mode, o.tail = opaque, [2]observe.Stream{s, s}
	early := o.early
	o.early, o.req.line, o.res.line, o.queue = nil, nil, nil, nil
	if o.opt.Upgrade != nil {
		if n := o.opt.Upgrade(o.sink, s, &e.request); n != nil {
			o.next, o.mode = n, handed
		}
	}
	if o.mode == opaque {
		o.count(observe.FromClient, len(early))
		o.count(observe.FromApp, len(p)-end)
		return
	}
	if len(early) > 0 {
		o.next.Data(observe.FromClient, early) // nothing was ordered yet, so there are no edits
	}
	if end < len(p) {
		o.next.Data(observe.FromApp, p[end:])
	}
	if o.ending {
		o.edits = append(o.edits, o.next.Tell(observe.OrderEnd)...)
		for i := range o.edits {
			if o.edits[i].Dir == observe.FromApp {
				o.edits[i].Off = len(p)
			}
		}
	}
}

func (o *Observer) body(e *exchange, p []byte) {
	if !e.sse || e.stream == nil {
		return
	}
	for range o.events.Write(p) {
		e.stream.Message(observe.FromApp)
	}
}

// answered handles the end of a response at off of the app's flow.
func (o *Observer) answered(off int) {
	e := o.queue[0]
	o.queue = append(o.queue[:0], o.queue[1:]...)
	e.resDone = true
	e.stream.Done(observe.Outcome{Verdict: observe.Completed, By: observe.FromApp})
	e.stream = nil
	o.res.reset()
	told := e.told
	o.release(e)
	if told {
		o.sink.CloseAfter()
		return
	}
	o.refuse(off)
}

// endEvents ends an event stream at off if that leaves no truncated event behind.
func (o *Observer) endEvents(off int) bool {
	if len(o.queue) == 0 || !o.queue[0].sse || !o.events.AtBoundary() {
		return false
	}
	m, e := &o.res, o.queue[0]
	switch {
	case m.state == stChunkSize && m.size == 0:
		o.edits = append(o.edits, observe.Edit{Dir: observe.FromApp, Off: off, Insert: lastChunk})
	case m.state == stUntilClose:
	default:
		return false
	}
	e.stream.Bytes(observe.FromApp, off-o.start)
	e.stream.Done(observe.Outcome{Verdict: observe.Ended})
	o.queue = o.queue[:0]
	o.closing = true
	o.res.reset()
	o.sink.CloseAfter()
	return true
}

var lastChunk = bytes.Clone([]byte("0\r\n\r\n"))
