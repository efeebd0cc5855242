package http2

import "github.com/lastcall-proxy/lastcall/proxy/observe"

// View is what an observer knows of its connection beyond what its events have told.
type View struct {
	// Window is what each side may still send on the connection, in bytes (RFC 9113 section 6.9).
	Window [2]int64
	// RoundTrip is how long each side last took to answer a PING, in nanoseconds; -1: none was seen.
	RoundTrip [2]int64
	Streams   []StreamView
}

// StreamView is a stream that has a record.
type StreamView struct {
	Stream observe.Stream
	// Window is what each side may still send on the stream; below zero after a smaller SETTINGS_INITIAL_WINDOW_SIZE.
	Window [2]int64
}

// Inspect tells the windows and round trips as they are now. False: track was lost, nothing is known.
func (o *Observer) Inspect() (View, bool) {
	if o.lost {
		return View{}, false
	}
	v := View{RoundTrip: [2]int64{-1, -1}}
	for i := range o.flows {
		v.Window[i] = o.flows[i].window
		if rt := o.trips[i].took; rt > 0 {
			v.RoundTrip[i] = rt
		}
	}
	for _, id := range o.ids() {
		if s := o.streams[id]; s.rec != nil {
			v.Streams = append(v.Streams, StreamView{Stream: s.rec, Window: [2]int64{int64(s.window[0]), int64(s.window[1])}})
		}
	}
	return v, true
}

// trip times the answers of one side to PINGs. With several PINGs under way at once only the last answer's time would be
// known, and of which PING; those are not timed.
type trip struct {
	sent, took int64
	open       int
}

func (t *trip) ping(now int64) {
	if t.open == 0 {
		t.sent = now
	}
	t.open++
}

func (t *trip) ack(now int64) {
	if t.open == 0 {
		return
	}
	if t.open--; t.open == 0 && t.sent > 0 {
		t.took = max(now-t.sent, 1)
	}
	t.sent = 0
}

// now is zero where nobody gave a clock: then nothing is timed.
func (o *Observer) now() int64 {
	if o.opt.Now == nil {
		return 0
	}
	return o.opt.Now()
}
