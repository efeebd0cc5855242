package http2

import (
	"encoding/binary"
	"slices"

	"github.com/lastcall-proxy/lastcall/proxy/observe"
)

// setting takes one of a side's settings: they bound what the other side may send.
func (o *Observer) setting(dir observe.Direction, b []byte) {
	v := binary.BigEndian.Uint32(b[2:])
	f := &o.flows[dir.Other()]
	switch binary.BigEndian.Uint16(b) {
	case settingTableSize:
		// The largest size that was ever offered is accepted. A smaller one takes effect in order, by the size update that
		// its encoder must send (RFC 7541 section 4.2).
		f.dec.allowed = max(f.dec.allowed, v)
	case settingInitialWindow:
		delta := int64(v) - f.initial
		f.initial = int64(v)
		for _, s := range o.streams {
			s.window[dir.Other()] += int32(delta)
			o.state(s)
		}
	}
}

// windowFrame handles the header of a WINDOW_UPDATE. It is held back where a part of it has to be kept.
func (o *Observer) windowFrame(dir observe.Direction) bool {
	f := &o.flows[dir]
	if f.id != 0 || o.flows[dir.Other()].debt == 0 {
		o.pass(dir)
	}
	return true
}

func (o *Observer) windowEnd(dir observe.Direction) {
	f, other := &o.flows[dir], &o.flows[dir.Other()]
	n := binary.BigEndian.Uint32(f.small[:4]) & maxID
	switch {
	case f.drop:
	case f.id != 0:
		if s := f.str; s != nil {
			s.window[dir.Other()] += int32(n)
			o.state(s)
		}
	case f.hold:
		paid := min(n, other.debt)
		other.debt -= paid
		o.swallow(dir)
		if n > paid {
			f.pending = appendWindowUpdate(f.pending, 0, n-paid)
		}
		o.opened(dir.Other(), int64(n))
	default:
		o.opened(dir.Other(), int64(n))
	}
}

// opened adds to what a side may send on the connection.
func (o *Observer) opened(dir observe.Direction, n int64) {
	f := &o.flows[dir]
	was := f.window
	f.window += n
	if was <= 0 && f.window > 0 {
		o.states()
	}
}

// states works out anew whose turn it is on every stream: the connection's window has closed, or opened.
func (o *Observer) states() {
	for _, s := range o.streams {
		o.state(s)
	}
}

// maybeOurs tells that a frame may be the answer to our PING.
func (o *Observer) maybeOurs(dir observe.Direction) bool {
	f := &o.flows[dir]
	return dir == observe.FromClient && f.flags&flagAck != 0 && o.pings > 0 && f.hold
}

func (o *Observer) pingEnd(dir observe.Direction) {
	f := &o.flows[dir]
	v := binary.BigEndian.Uint64(f.small[:8])
	ack := f.flags&flagAck != 0
	if ack {
		o.trips[dir].ack(o.now())
	} else {
		o.trips[dir.Other()].ping(o.now())
	}
	switch {
	case dir == observe.FromApp && !ack:
		if o.appPingCount < len(o.appPings) {
			o.appPings[o.appPingCount] = v
			o.appPingCount++
		}
	case dir == observe.FromClient && ack:
		// Ours was sent when no PING of the app's with these eight bytes was unanswered, so that the first answer is to ours,
		// even if the app has used the same ones since.
		if f.hold && o.pings > 0 && v == o.ping {
			o.pings--
			o.answered = true
			o.swallow(dir)
			return
		}
		o.pass(dir)
		if i := slices.Index(o.appPings[:o.appPingCount], v); i >= 0 {
			o.appPingCount = copy(o.appPings[:], slices.Delete(o.appPings[:o.appPingCount], i, i+1))
		}
	}
}

// goAway handles a GOAWAY of a peer's, once its first eight bytes have come.
func (o *Observer) goAway(dir observe.Direction) {
	f := &o.flows[dir]
	last := binary.BigEndian.Uint32(f.small[:4]) & maxID
	if dir == observe.FromApp && last > o.wire && f.hold {
		o.swallow(dir) // clients end a connection whose last id rises
		o.sink.Farewell(false)
		return
	}
	o.pass(dir)
	o.sink.Farewell(false)
	if dir == observe.FromClient {
		return
	}
	o.wire = min(o.wire, last)
	for _, id := range o.ids() {
		if s := o.streams[id]; id&1 == 1 && id > last && !s.gone {
			s.reqDone, s.resDone = true, true
			o.done(s, observe.Outcome{Verdict: observe.Aborted, By: observe.FromApp, Reset: codeNames[codeRefusedStream], Reason: "above the last stream of the app's GOAWAY"})
			o.finish(s)
		}
	}
}

// ids are the streams in their order.
func (o *Observer) ids() []uint32 {
	ids := make([]uint32, 0, len(o.streams))
	for id := range o.streams {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func (o *Observer) resetEnd(dir observe.Direction) {
	f := &o.flows[dir]
	s := f.str
	if s == nil {
		return
	}
	if s.gone {
		o.goneEnd(s, dir)
		return
	}
	code := binary.BigEndian.Uint32(f.small[:4])
	out := observe.Outcome{Verdict: observe.Aborted, By: dir, Reset: codeName(code)}
	if s.resDone { // the answer was whole: what remained of the request was not wanted
		out = observe.Outcome{Verdict: observe.Completed, By: observe.FromApp}
	}
	if dir == observe.FromClient && !s.resHead {
		if o.resets++; o.resets > maxRun {
			o.lose(LostFlood)
			return
		}
	}
	s.reqDone, s.resDone = true, true
	o.done(s, out)
}

// goneEnd notes that a side has ended its part of a stream that we ended.
func (o *Observer) goneEnd(s *stream, dir observe.Direction) {
	if dir == observe.FromClient {
		s.reqDone = true
	} else {
		s.resDone = true
	}
}
