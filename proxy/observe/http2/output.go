// What goes on to the other side: bytes as they came, held ones, none, and our own frames between.

package http2

import (
	"encoding/binary"

	"github.com/lastcall-proxy/lastcall/proxy/observe"
)

// leave settles what a call leaves unfinished.
func (o *Observer) leave(dir observe.Direction, p []byte) {
	f := &o.flows[dir]
	if o.lost {
		o.release(dir)
		return
	}
	o.tellBytes(dir)
	if f.view != nil { // it was not the whole block after all
		f.frag = append(f.frag, f.view...)
		f.view = nil
	}
	switch {
	case f.hold:
		f.held = append(f.held, p[o.holdFrom:]...)
		o.edits = append(o.edits, observe.Edit{Dir: dir, Off: o.holdFrom, Drop: len(p) - o.holdFrom})
	case f.drop:
		o.edits = append(o.edits, observe.Edit{Dir: dir, Off: o.dropFrom, Drop: len(p) - o.dropFrom})
	}
}

// tellBytes counts what has come of the frame under way.
func (o *Observer) tellBytes(dir observe.Direction) {
	f := &o.flows[dir]
	if f.str != nil && f.str.rec != nil && f.uncounted > 0 {
		f.str.rec.Bytes(dir, f.uncounted)
		f.uncounted = 0
	}
}

// release lets held bytes go on: track was lost.
func (o *Observer) release(dir observe.Direction) {
	f := &o.flows[dir]
	if f.hold {
		o.pass(dir)
	}
	for i := range o.flows {
		other := &o.flows[i]
		if observe.Direction(i) != dir && other.hold && len(other.held) > 0 {
			o.edits = append(o.edits, observe.Edit{Dir: observe.Direction(i), Insert: other.held})
			other.hold, other.held = false, nil
		}
	}
}

// pass lets held bytes go on.
func (o *Observer) pass(dir observe.Direction) {
	f := &o.flows[dir]
	f.mid = true
	if !f.hold {
		return
	}
	f.hold = false
	if len(f.held) > 0 {
		o.edits = append(o.edits, observe.Edit{Dir: dir, Off: o.holdFrom, Insert: f.held})
		f.held = nil
	}
}

// swallow takes the frame, or the block, away.
func (o *Observer) swallow(dir observe.Direction) {
	f := &o.flows[dir]
	f.drop, o.dropFrom = true, o.holdFrom
	f.hold, f.held = false, nil
}

// flush puts in what waits for a boundary of a flow.
func (o *Observer) flush(dir observe.Direction) {
	f := &o.flows[dir]
	if len(f.pending) == 0 || f.mid || !f.settings {
		return
	}
	if dir == observe.FromApp {
		f.pending = o.dropHigher(f.pending)
	}
	o.insert(dir, f.pending)
	f.pending = nil
}

// dropHigher takes a GOAWAY of ours out again that waited behind a lower one of the app's.
func (o *Observer) dropHigher(b []byte) []byte {
	for i := 0; i < len(b); {
		n := headLen + int(binary.BigEndian.Uint32(b[i:])>>8)
		if b[i+3] == typeGoAway && binary.BigEndian.Uint32(b[i+headLen:]) > o.wire {
			b = append(b[:i:i], b[i+n:]...)
			continue
		}
		i += n
	}
	return b
}

// put gives a flow a frame of ours: now, if it stands at a boundary, else at the next one.
func (o *Observer) put(dir observe.Direction, frame []byte) {
	f := &o.flows[dir]
	if len(f.pending) > 0 || f.mid || !f.settings || o.feeding == int8(dir) && f.drop {
		f.pending = append(f.pending, frame...)
		return
	}
	o.insert(dir, frame)
}

func (o *Observer) insert(dir observe.Direction, b []byte) {
	off := o.at
	if f := &o.flows[dir]; o.feeding == int8(dir) && f.hold {
		off = o.holdFrom
	}
	o.edits = append(o.edits, observe.Edit{Dir: dir, Off: off, Insert: b})
}
