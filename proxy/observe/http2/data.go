package http2

import (
	"github.com/lastcall-proxy/lastcall/proxy/observe"
	"github.com/lastcall-proxy/lastcall/proxy/observe/grpc"
)

// dataFrame handles the header of a DATA frame. False: track was lost.
func (o *Observer) dataFrame(dir observe.Direction) bool {
	f := &o.flows[dir]
	if f.size < f.skip {
		o.lose(LostFrame)
		return false
	}
	s := f.str
	if o.swallowed(dir) {
		o.giveBack(dir, uint32(f.size))
		return true
	}
	was := f.window
	f.window -= int64(f.size)
	if s != nil {
		s.window[dir] -= int32(f.size)
	}
	if was > 0 && f.window <= 0 {
		o.states()
	}
	if s != nil && s.leaving && f.hold && f.size <= maxBlock {
		return true // its payload is edited once it is whole
	}
	o.pass(dir)
	return true
}

// giveBack returns window to a sender whose bytes the receiver will never see: on the connection only, since the stream
// is over. What we owe it is paid first.
func (o *Observer) giveBack(dir observe.Direction, n uint32) {
	f := &o.flows[dir]
	paid := min(n, f.debt)
	f.debt -= paid
	if n > paid {
		o.put(dir.Other(), appendWindowUpdate(nil, 0, n-paid))
	}
}

// data takes the next bytes of a stream's body.
func (o *Observer) data(dir observe.Direction, p []byte) {
	f := &o.flows[dir]
	s := f.str
	if s == nil || s.rec == nil || s.gone {
		return
	}
	switch {
	case s.leaving && f.hold:
		f.frag = append(f.frag, p...)
	case s.dialect != grpc.None:
		for range s.scan[dir].Write(p, s.dialect) {
			s.rec.Message(dir)
		}
	case s.socket != nil:
		s.socket.Data(dir, p) // there are no edits: they come only from a stream that is leaving
	}
}

func (o *Observer) dataEnd(dir observe.Direction) {
	f := &o.flows[dir]
	s := f.str
	end := f.flags&flagEndStream != 0
	switch {
	case s == nil:
	case s.gone:
		if end {
			o.goneEnd(s, dir)
		}
	case s.leaving && f.hold:
		o.editSocket(s, dir, end)
		f.frag = nil
	case end:
		o.halfClosed(s, dir)
	default:
		if s.window[dir] <= 0 {
			o.state(s)
		}
		if o.ending && dir == observe.FromApp {
			o.endStream(s)
		}
	}
}
