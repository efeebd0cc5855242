package http2

import (
	"encoding/binary"

	"github.com/lastcall-proxy/lastcall/proxy/observe"
)

// flow is the frame walk of one direction.
type flow struct {
	dec     decoder
	preface uint8 // bytes of it that came; client's flow only

	// The frame that is being read.
	head      [headLen]byte
	got       uint8 // bytes of its header so far
	typ       uint8
	flags     uint8
	id        uint32
	left      int // payload bytes still to come
	pad       int // of those, padding at the end
	skip      int // payload bytes still to come before DATA or a fragment begins
	size      int // length of its payload
	data      int // of that, data
	small     [16]byte
	seen      int // bytes of small
	str       *stream
	uncounted int // its bytes that its stream was not told of

	// The header block that is being read.
	block      bool
	blockID    uint32
	blockFlags uint8
	blockType  uint8
	priority   [5]byte
	promised   uint32
	frames     int
	frag       []byte // its fragments so far, unless it lies whole in this call
	view       []byte

	hold     bool // the frame's, or block's, bytes are kept until it is known what becomes of them
	held     []byte
	drop     bool // the frame is swallowed
	mid      bool // what was passed on ends inside a frame or header block
	rewrite  bool
	told     bool   // the receiver was told to keep no table
	settings bool   // the first SETTINGS has passed
	pending  []byte // frames of ours that wait for a boundary

	window  int64 // what the source may still send on the connection
	initial int64 // what it may send on a new stream: the receiver's setting
	debt    uint32
}

// atFrame tells that no byte of a further frame has come.
func (f *flow) atFrame() bool { return f.got == 0 && f.left == 0 && !f.block }

// walk reads the next bytes of a flow.
func (o *Observer) walk(dir observe.Direction, p []byte) {
	f := &o.flows[dir]
	i := 0
	if dir == observe.FromClient && int(f.preface) < len(Preface) {
		n := min(len(p), len(Preface)-int(f.preface))
		if string(p[:n]) != Preface[f.preface:int(f.preface)+n] {
			o.lose(LostPreface)
			return
		}
		if f.preface += uint8(n); int(f.preface) == len(Preface) {
			o.sink.Protocol(observe.HTTP2)
		}
		i = n
	}
	for i < len(p) && !o.lost {
		if f.got < headLen {
			if f.got == 0 {
				switch {
				case o.careful && !f.hold && !f.block:
					f.hold, o.holdFrom = true, i
				case !f.hold:
					f.mid = true
				}
			}
			n := copy(f.head[f.got:], p[i:])
			f.got += uint8(n)
			i += n
			if f.got < headLen {
				break
			}
			o.at = i
			f.uncounted += headLen
			if !o.frame(dir) {
				break
			}
			if f.left > 0 {
				continue
			}
		} else {
			n := min(f.left, len(p)-i)
			o.at = i + n
			f.uncounted += n
			o.payload(dir, p[i:i+n])
			f.left -= n
			i += n
			if f.left > 0 || o.lost {
				break
			}
		}
		o.at = i
		o.frameEnd(dir)
	}
	o.leave(dir, p)
}

// frame handles a whole frame header. False: track was lost.
func (o *Observer) frame(dir observe.Direction) bool {
	f := &o.flows[dir]
	h := binary.BigEndian.Uint32(f.head[:])
	f.size, f.typ, f.flags = int(h>>8), uint8(h), f.head[4]
	f.id = binary.BigEndian.Uint32(f.head[5:]) & maxID
	f.left, f.pad, f.skip, f.seen, f.data, f.str = f.size, 0, 0, 0, 0, nil
	if f.block != (f.typ == typeContinuation) || f.block && f.id != f.blockID {
		o.lose(LostFrame)
		return false
	}
	if f.id != 0 {
		f.str = o.streams[f.id]
	}
	if !f.settings && f.typ != typeSettings { // both prefaces end with one (RFC 9113 section 3.4)
		o.lose(LostFrame)
		return false
	}
	if !o.count(f) {
		o.lose(LostFlood)
		return false
	}
	switch f.typ {
	case typeData:
		if f.id == 0 {
			break
		}
		if f.flags&flagPadded != 0 {
			f.skip = 1
		}
		return o.dataFrame(dir)
	case typeHeaders, typePushPromise:
		if f.id == 0 || f.typ == typePushPromise && dir == observe.FromClient {
			break
		}
		f.block, f.blockID, f.blockFlags, f.blockType, f.frames, f.promised = true, f.id, f.flags, f.typ, 0, 0
		if f.flags&flagPadded != 0 {
			f.skip++
		}
		if f.typ == typePushPromise {
			f.skip += 4
		} else if f.flags&flagPriority != 0 {
			f.skip += 5
		}
		if f.size < f.skip {
			break
		}
		return o.headersFrame(dir)
	case typeContinuation:
		if f.frames++; f.frames > maxContinuations {
			o.lose(LostFlood)
			return false
		}
		return true
	case typeSettings:
		if f.id != 0 || f.size%6 != 0 {
			break
		}
		o.pass(dir)
		return true
	case typePing:
		if f.id != 0 || f.size != 8 {
			break
		}
		if !o.maybeOurs(dir) {
			o.pass(dir)
		}
		return true
	case typeGoAway:
		if f.id != 0 || f.size < 8 {
			break
		}
		return true
	case typeWindowUpdate:
		if f.size != 4 {
			break
		}
		return o.swallowed(dir) || o.windowFrame(dir)
	case typeReset:
		if f.id == 0 || f.size != 4 {
			break
		}
		if !o.swallowed(dir) {
			o.pass(dir)
		}
		return true
	default: // PRIORITY, extensions: passed on, but for those of streams that the other side knows nothing of
		if !o.swallowed(dir) {
			o.pass(dir)
		}
		return true
	}
	o.lose(LostFrame)
	return false
}

// count ends a connection's account that is flooded with frames that cost the sender nothing.
func (o *Observer) count(f *flow) bool {
	switch f.typ {
	case typeSettings, typePing, typePriority:
		o.run++
	case typeContinuation, typeReset:
	case typeData:
		if f.size == 0 && f.flags&flagEndStream == 0 {
			o.run++
		} else {
			o.run = 0
		}
	case typeHeaders, typeWindowUpdate:
		o.run = 0
	}
	return o.run <= maxRun
}

// swallowed takes frames away that belong to a stream which the receiver does not know, or does not know any more.
func (o *Observer) swallowed(dir observe.Direction) bool {
	f := &o.flows[dir]
	if f.id == 0 || !f.hold { // not held: its first bytes were out before the reason came
		return false
	}
	if dir == observe.FromClient && f.id&1 == 1 && f.id > o.limit || f.str != nil && f.str.gone {
		o.swallow(dir)
		return true
	}
	return false
}

// payload handles the next bytes of a frame's payload.
func (o *Observer) payload(dir observe.Direction, p []byte) {
	f := &o.flows[dir]
	switch f.typ {
	case typeData, typeHeaders, typePushPromise, typeContinuation:
		left := f.left
		for f.skip > 0 && len(p) > 0 {
			f.small[f.seen] = p[0]
			f.seen++
			f.skip--
			p = p[1:]
			left--
			if f.skip == 0 && !o.prefix(dir, left) {
				return
			}
		}
		if n := min(len(p), left-f.pad); n > 0 {
			if f.typ == typeData {
				o.data(dir, p[:n])
			} else {
				o.fragment(f, p[:n])
			}
		}
	case typeSettings:
		if f.flags&flagAck != 0 {
			return
		}
		for len(p) > 0 {
			n := copy(f.small[f.seen:6], p)
			f.seen += n
			p = p[n:]
			if f.seen == 6 {
				f.seen = 0
				o.setting(dir, f.small[:6])
			}
		}
	default:
		n := copy(f.small[f.seen:8], p)
		f.seen += n
		if f.typ == typeGoAway && n > 0 && f.seen == 8 {
			o.goAway(dir)
		}
	}
}

// prefix reads what stands before data or a fragment, whose end is left bytes away. False: track was lost.
func (o *Observer) prefix(dir observe.Direction, left int) bool {
	f := &o.flows[dir]
	at := 0
	if f.flags&flagPadded != 0 {
		f.pad = int(f.small[0])
		at = 1
	}
	if f.pad > left {
		o.lose(LostFrame)
		return false
	}
	switch {
	case f.typ == typePushPromise:
		f.promised = binary.BigEndian.Uint32(f.small[at:]) & maxID
	case f.typ == typeHeaders && f.flags&flagPriority != 0:
		copy(f.priority[:], f.small[at:])
	}
	return true
}

// fragment takes a part of a header block.
func (o *Observer) fragment(f *flow, p []byte) {
	if len(f.frag)+len(f.view)+len(p) > maxBlock {
		o.lose(LostHeaders)
		return
	}
	if f.view == nil && len(f.frag) == 0 {
		f.view = p
		return
	}
	f.frag = append(append(f.frag, f.view...), p...)
	f.view = nil
}

// frameEnd handles the end of a frame.
func (o *Observer) frameEnd(dir observe.Direction) {
	f := &o.flows[dir]
	f.got = 0
	str := f.str
	switch f.typ {
	case typeData:
		o.dataEnd(dir)
	case typeHeaders, typePushPromise, typeContinuation:
		if f.flags&flagEndHeaders == 0 {
			return
		}
		if f.view != nil && len(f.frag) > 0 {
			f.frag = append(f.frag, f.view...)
			f.view = nil
		}
		block := f.view
		if block == nil {
			block = f.frag
		}
		str = o.blockEnd(dir, block)
		f.block, f.view, f.frag = false, nil, nil
	case typeSettings:
		f.settings = true
	case typePing:
		o.pingEnd(dir)
	case typeWindowUpdate:
		o.windowEnd(dir)
	case typeReset:
		o.resetEnd(dir)
	default:
	}
	if o.lost {
		return
	}
	o.tellBytes(dir)
	if f.drop {
		o.edits = append(o.edits, observe.Edit{Dir: dir, Off: o.dropFrom, Drop: o.at - o.dropFrom})
		f.drop = false
	}
	f.hold, f.mid, f.uncounted = false, false, 0
	if f.str = nil; str != nil {
		o.finish(str)
	}
	o.flush(dir)
	o.after()
}
