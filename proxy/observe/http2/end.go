package http2

import (
	"encoding/binary"

	"github.com/lastcall-proxy/lastcall/proxy/observe"
	"github.com/lastcall-proxy/lastcall/proxy/observe/grpc"
)

// healthWatch is the path of grpc.health.v1.Health/Watch.
const healthWatch = "/grpc.health.v1.Health/Watch"

// goodbye is what a call that we end is told: UNAVAILABLE is the status that clients may retry elsewhere.
const (
	statusUnavailable = 14
	goodbye           = "server is shutting down"
)

// margin is the window that must be left for a frame of ours: the app, which does not know of it, may use what it believes
// to have before the next WINDOW_UPDATE has paid.
const margin = 16 << 10

// endStream ends a stream politely, if that can be done now; if not, the end of the app's next frame is the next chance.
func (o *Observer) endStream(s *stream) {
	app := &o.flows[observe.FromApp]
	switch {
	case s.rec == nil || !s.headed || s.gone || s.leaving:
	case app.mid && (app.got < headLen && !app.block || app.str == s || app.block && app.blockID == s.id):
		o.endLater = true // inside one of its frames, or of one whose stream is not known yet
	case s.socket != nil:
		o.endSocket(s)
	case s.resDone: // it has its answer; only the rest of the request is not taken any more
		o.put(observe.FromApp, appendReset(nil, s.id, codeNoError))
		o.put(observe.FromClient, appendReset(nil, s.id, codeCancel))
		s.gone = true
		o.done(s, observe.Outcome{Verdict: observe.Completed, By: observe.FromApp})
	case s.dialect == grpc.GRPC:
		if s.scan[observe.FromApp].AtBoundary() { // mid-message, clients report INTERNAL
			o.endCall(s)
		}
	case s.dialect == grpc.Web || s.dialect == grpc.Connect:
		if s.scan[observe.FromApp].AtBoundary() {
			o.endBody(s)
		}
	default:
		o.resetBoth(s, codeCancel, observe.Outcome{Verdict: observe.Ended, Reset: codeNames[codeCancel]})
	}
}

// endCall gives a gRPC call its status.
func (o *Observer) endCall(s *stream) {
	var fields []byte
	if !s.resHead {
		fields = appendLiteral(fields, []byte(":status"), []byte("200"), false)
		fields = appendLiteral(fields, []byte("content-type"), []byte("application/grpc"), false)
		s.rec.Status(200)
	}
	fields = appendLiteral(fields, []byte("grpc-status"), []byte("14"), false)
	fields = appendLiteral(fields, []byte("grpc-message"), []byte(goodbye), false)
	block := o.literal(&o.flows[observe.FromApp], fields)
	o.put(observe.FromApp, appendBlock(nil, s.id, flagEndStream, nil, block))
	o.partBoth(s)
}

// endBody gives a call of gRPC-Web or Connect its last frame, which says the status.
func (o *Observer) endBody(s *stream) {
	flag, text := byte(0x80), "grpc-status: 14\r\ngrpc-message: "+goodbye+"\r\n"
	if s.dialect == grpc.Connect {
		flag, text = 0x02, `{"error":{"code":"unavailable","message":"`+goodbye+`"}}`
	}
	body := append(binary.BigEndian.AppendUint32([]byte{flag}, uint32(len(text))), text...)
	if !s.resHead || !o.afford(s, observe.FromApp, len(body)) {
		o.resetBoth(s, codeCancel, observe.Outcome{Verdict: observe.Ended, Reset: codeNames[codeCancel]})
		return
	}
	o.put(observe.FromApp, append(appendHead(nil, len(body), typeData, flagEndStream, s.id), body...))
	o.partBoth(s)
}

// partBoth closes both sides of a call that the client has its status of.
func (o *Observer) partBoth(s *stream) {
	if !s.reqDone {
		o.put(observe.FromApp, appendReset(nil, s.id, codeNoError))
	}
	o.put(observe.FromClient, appendReset(nil, s.id, codeCancel))
	s.gone = true
	s.rec.GRPCStatus(statusUnavailable)
	out := observe.Outcome{Verdict: observe.Ended}
	if s.watch && !o.ending {
		out.Reason = "a health watch does not hold a farewell"
	}
	o.done(s, out)
}

// afford takes window for bytes of ours that their sender does not know of, if there is enough.
func (o *Observer) afford(s *stream, dir observe.Direction, n int) bool {
	f := &o.flows[dir]
	if int(s.window[dir]) < n || f.window < int64(n+margin) {
		return false
	}
	f.window -= int64(n)
	f.debt += uint32(n)
	return true
}

// resetBoth ends a stream that has no better end.
func (o *Observer) resetBoth(s *stream, code uint32, out observe.Outcome) {
	o.put(observe.FromApp, appendReset(nil, s.id, code))
	o.put(observe.FromClient, appendReset(nil, s.id, code))
	s.gone = true
	o.done(s, out)
}

// appendPromise appends a PUSH_PROMISE with its block.
func appendPromise(b []byte, id, promised uint32, block []byte) []byte {
	first := min(len(block), safeFrame-4)
	flags := uint8(0)
	if first == len(block) {
		flags = flagEndHeaders
	}
	b = appendHead(b, 4+first, typePushPromise, flags, id)
	b = append(binary.BigEndian.AppendUint32(b, promised), block[:first]...)
	for block = block[first:]; len(block) > 0; {
		n, flags := min(len(block), safeFrame), uint8(0)
		if n == len(block) {
			flags = flagEndHeaders
		}
		b = append(appendHead(b, n, typeContinuation, flags, id), block[:n]...)
		block = block[n:]
	}
	return b
}
