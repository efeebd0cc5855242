package http2

import "github.com/lastcall-proxy/lastcall/proxy/observe"

// A WebSocket over an extended CONNECT (RFC 8441) is observed by the WebSocket observer, which sees the payload of the
// stream's DATA frames. It believes that it has a connection of its own: socketSink and socketStream keep it from the real
// one.

type socketSink struct {
	observe.Sink
	o *Observer
	s *stream
}

// Farewell is observe.Sink's: a Close is the stream's, not the connection's.
func (k *socketSink) Farewell(bool) {}

// CloseAfter is observe.Sink's.
func (k *socketSink) CloseAfter() {}

// LostTrack is observe.Sink's: only this stream is not understood any more.
func (k *socketSink) LostTrack(string) { k.s.unread = true }

type socketStream struct {
	observe.Stream
	o *Observer
	s *stream
}

// Bytes is observe.Stream's: they are counted by frames.
func (k *socketStream) Bytes(observe.Direction, int) {}

// State is observe.Stream's.
func (k *socketStream) State(observe.Waiting, observe.Stage) {}

// Done is observe.Stream's.
func (k *socketStream) Done(out observe.Outcome) { k.o.done(k.s, out) }

func (o *Observer) openSocket(s *stream) {
	s.socket = o.opt.WebSocket(&socketSink{Sink: o.sink, o: o, s: s}, &socketStream{Stream: s.rec, o: o, s: s})
}

// endSocket asks a WebSocket to close: at once in a direction that stands between two frames of its own, in the other one
// as soon as it does. From then on its DATA frames are edited.
func (o *Observer) endSocket(s *stream) {
	client := &o.flows[observe.FromClient]
	const closeFrame = 8 // the longer one, masked
	tight := func(d observe.Direction) bool {
		return int(s.window[d]) < closeFrame || o.flows[d].window < closeFrame+margin
	}
	if s.unread || s.reqDone || s.resDone || tight(observe.FromClient) || tight(observe.FromApp) || client.mid && client.str == s {
		o.resetBoth(s, codeCancel, observe.Outcome{Verdict: observe.Ended, Reset: codeNames[codeCancel]})
		return
	}
	s.leaving = true
	for _, e := range s.socket.Tell(observe.OrderEnd) {
		o.closeSocket(s, e.Dir, e.Insert, 0)
	}
}

// closeSocket sends the last bytes of one direction; sent of them are the sender's own.
func (o *Observer) closeSocket(s *stream, dir observe.Direction, p []byte, sent int) {
	if extra := len(p) - sent; extra > 0 {
		o.flows[dir].window -= int64(extra)
		o.flows[dir].debt += uint32(extra)
	} else if extra < 0 {
		o.giveBack(dir, uint32(-extra))
	}
	frame := append(appendHead(nil, len(p), typeData, flagEndStream, s.id), p...)
	o.put(dir, frame)
	s.said[dir] = true
	s.gone = s.said[0] && s.said[1]
}

// editSocket passes on a DATA frame of a WebSocket that is being closed, with the Close in it if it can stand there.
func (o *Observer) editSocket(s *stream, dir observe.Direction, end bool) {
	f := &o.flows[dir]
	payload := f.frag
	o.swallow(dir)
	if s.said[dir] { // behind our Close: a peer's reply
		o.giveBack(dir, uint32(f.size))
		return
	}
	var out []byte
	at, closed := 0, false
	for _, e := range s.socket.Data(dir, payload) {
		if e.Dir == dir {
			out = append(append(out, payload[at:e.Off]...), e.Insert...)
			at = e.Off + e.Drop
			closed = closed || len(e.Insert) > 0
		}
	}
	out = append(out, payload[at:]...)
	if closed {
		o.closeSocket(s, dir, out, f.size)
		return
	}
	if pad := f.size - len(out); pad > 0 {
		o.giveBack(dir, uint32(pad))
	}
	flags := uint8(0)
	if end {
		flags = flagEndStream
	}
	f.pending = append(appendHead(f.pending, len(out), typeData, flags, s.id), out...)
	if end {
		o.halfClosed(s, dir)
	}
}
