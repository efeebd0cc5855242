// Package websocket observes the frames of a WebSocket connection after its handshake (RFC 6455 section 5), both ways.
// Payload is never read, but for a Close frame's code, so that every negotiated extension is fine.
package websocket

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/lastcall-proxy/lastcall/proxy/observe"
)

// LostFrame is the reason for losing track: a frame that RFC 6455 section 5.2 or 5.5 forbids.
const LostFrame = "websocket_bad_frame"

// Close codes of a polite end (RFC 6455 section 7.4.1 and its registry): "service restart" to the client, which may come
// back elsewhere, "going away" to the app.
const (
	codeToClient = 1012
	codeToApp    = 1001
)

// flow is the frame walk of one direction.
type flow struct {
	head   [14]byte // of the frame that is being read
	got    int      // bytes of it so far
	need   int      // its length as far as known
	left   uint64   // payload bytes still to come
	opcode byte
	masked bool
	mask   [4]byte
	fin    bool
	seen   int // payload bytes of a Close seen so far
	code   int
	closed bool // a Close went by: what follows means nothing (section 5.5.1), though late pongs are common
	ours   bool // our Close went into it: the rest is swallowed
}

func (f *flow) boundary() bool { return f.got == 0 && f.left == 0 }

// Observer watches one WebSocket connection.
type Observer struct {
	sink     observe.Sink
	stream   observe.Stream
	flows    [2]flow
	lost     bool
	done     bool
	ending   bool
	first    observe.Direction // who said Close first
	anyClose bool
	edits    []observe.Edit
	frames   [2][16]byte
}

// New takes a stream over after the 101.
func New(sink observe.Sink, s observe.Stream) *Observer {
	o := &Observer{sink: sink, stream: s}
	s.State(observe.WaitingEither, observe.StageTunnel)
	return o
}

// Closing tells who said Close first and with which code, if anyone did.
func (o *Observer) Closing() (by observe.Direction, code int, ok bool) {
	return o.first, o.flows[o.first].code, o.anyClose
}

// Data is observe.Observer's.
func (o *Observer) Data(dir observe.Direction, p []byte) []observe.Edit {
	f := &o.flows[dir]
	o.edits = o.edits[:0]
	counted := 0 // of p: what lies behind the last Close is not the stream's, wherever the read was cut
	for i := 0; i < len(p) && !o.lost && !o.done && !f.closed; {
		n, whole := o.step(dir, p[i:])
		i += n
		if !whole {
			continue
		}
		if f.opcode == opClose || o.ending {
			o.stream.Bytes(dir, i-counted)
			counted = i
		}
		o.frameEnd(dir)
		if o.ending && !f.closed {
			o.say(dir, i)
			if !o.done {
				o.stream.Bytes(dir, len(p)-i)
			}
			return o.swallow(dir, i, len(p)-i)
		}
	}
	if !o.done {
		o.stream.Bytes(dir, len(p)-counted)
	}
	if f.ours {
		return o.swallow(dir, 0, len(p))
	}
	return nil
}

func (o *Observer) result() []observe.Edit {
	if len(o.edits) == 0 {
		return nil
	}
	return o.edits
}

// swallow drops the rest of a flow's bytes, behind what was put in.
func (o *Observer) swallow(dir observe.Direction, off, n int) []observe.Edit {
	if k := len(o.edits); k > 0 && o.edits[k-1].Dir == dir && o.edits[k-1].Off == off {
		o.edits[k-1].Drop = n
	} else if n > 0 {
		o.edits = append(o.edits, observe.Edit{Dir: dir, Off: off, Drop: n})
	}
	return o.result()
}

// step takes some bytes of one frame; it tells how many, and whether the frame is whole with them.
func (o *Observer) step(dir observe.Direction, p []byte) (n int, whole bool) {
	f := &o.flows[dir]
	if f.left > 0 {
		n = int(min(f.left, uint64(len(p))))
		if f.opcode == opClose {
			f.payload(p[:n])
		}
		f.left -= uint64(n)
		return n, f.left == 0
	}
	if f.got == 0 {
		f.need = 2
	}
	n = copy(f.head[f.got:f.need], p)
	f.got += n
	if f.got == 2 && f.need == 2 {
		switch f.head[1] & 0x7f {
		case 126:
			f.need += 2
		case 127:
			f.need += 8
		}
		if f.head[1]&0x80 != 0 {
			f.need += 4
		}
	}
	if f.got < f.need {
		return n, false
	}
	if !f.begin() {
		o.lost = true
		o.sink.LostTrack(LostFrame)
		return n, false
	}
	return n, f.left == 0
}

// Opcodes.
const (
	opContinuation = 0
	opText         = 1
	opBinary       = 2
	opClose        = 8
	opPong         = 10
)

// begin reads a whole frame head and says whether it is allowed.
func (f *flow) begin() bool {
	f.got = 0
	f.opcode, f.fin, f.masked = f.head[0]&0x0f, f.head[0]&0x80 != 0, f.head[1]&0x80 != 0
	at := 2
	switch n := f.head[1] & 0x7f; n {
	case 126:
		f.left, at = uint64(binary.BigEndian.Uint16(f.head[2:])), 4
	case 127:
		f.left, at = binary.BigEndian.Uint64(f.head[2:]), 10
	default:
		f.left = uint64(n)
	}
	if f.masked {
		copy(f.mask[:], f.head[at:])
	}
	f.seen, f.code = 0, 0
	switch {
	case f.left>>63 != 0:
		return false
	case f.opcode >= opClose: // control frames are short and whole
		return f.opcode <= opPong && f.fin && f.left <= 125
	default:
		return f.opcode <= opBinary
	}
}

// payload reads a Close frame's code.
func (f *flow) payload(p []byte) {
	for _, c := range p {
		if f.seen >= 2 {
			return
		}
		if f.masked {
			c ^= f.mask[f.seen]
		}
		f.code = f.code<<8 | int(c)
		f.seen++
	}
}

func (o *Observer) frameEnd(dir observe.Direction) {
	f := &o.flows[dir]
	switch {
	case f.opcode == opClose:
		if f.seen < 2 {
			f.code = 1005 // no code was given (section 7.1.5)
		}
		f.closed = true
		if !o.anyClose {
			o.anyClose, o.first = true, dir
			o.sink.Farewell(false)
		}
		if o.flows[dir.Other()].closed {
			o.finish()
		}
	case f.opcode < opClose && f.fin:
		o.stream.Message(dir)
	}
}

// say puts our Close into a flow. It is made at a frame's boundary, and only where no Close went by.
func (o *Observer) say(dir observe.Direction, off int) {
	f := &o.flows[dir]
	b := o.frames[dir][:0]
	if dir == observe.FromApp {
		b = append(b, 0x80|opClose, 2)
		b = binary.BigEndian.AppendUint16(b, codeToClient)
	} else {
		var key [4]byte
		binary.NativeEndian.PutUint32(key[:], rand.Uint32())
		b = append(b, 0x80|opClose, 0x80|2, key[0], key[1], key[2], key[3], codeToApp>>8^key[0], codeToApp&0xff^key[1])
	}
	o.edits = append(o.edits, observe.Edit{Dir: dir, Off: off, Insert: b})
	f.closed, f.ours = true, true
	if o.flows[dir.Other()].closed {
		o.finish()
	}
}

// finish ends the stream: both sides have said or been told Close.
func (o *Observer) finish() {
	if o.done {
		return
	}
	o.done = true
	if o.flows[0].ours || o.flows[1].ours {
		o.sink.Farewell(true)
		o.stream.Done(observe.Outcome{Verdict: observe.Ended, CloseCode: codeToClient})
		o.sink.CloseAfter()
		return
	}
	o.stream.Done(observe.Outcome{Verdict: observe.Completed, By: o.first, CloseCode: o.flows[o.first].code})
}

// EOF is observe.Observer's. A FIN without any Close is the owner's to judge; behind a Close it ends the stream as that
// Close meant it, answered or not: many peers close the connection instead of replying (RFC 6455 section 7.1.1 wants both).
func (o *Observer) EOF(observe.Direction) []observe.Edit {
	o.edits = o.edits[:0]
	if o.anyClose && !o.done && !o.ending {
		o.finish()
	}
	return nil
}

// Tell is observe.Observer's. WebSocket has no farewell but its Close.
func (o *Observer) Tell(order observe.Order) []observe.Edit {
	o.edits = o.edits[:0]
	if order != observe.OrderEnd || o.ending || o.lost || o.done {
		return nil
	}
	o.ending = true
	for dir := range o.flows {
		if f := &o.flows[dir]; f.boundary() && !f.closed {
			o.say(observe.Direction(dir), 0)
		}
	}
	return o.result()
}

// Idle is observe.Observer's.
func (o *Observer) Idle() bool { return o.done }
