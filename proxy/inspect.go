package proxy

import (
	"time"

	"github.com/lastcall-proxy/lastcall/proxy/observe"
	"github.com/lastcall-proxy/lastcall/tracker"
)

// HTTP2View is what a connection's HTTP/2 says of itself at this moment.
type HTTP2View struct {
	Window    tracker.Sides[int64]  // bytes that each side may still send on the connection
	RoundTrip [2]time.Duration      // how long client and app last took to answer a PING; negative: none was seen
	Streams   map[uint32]StreamView // by the stream's number in its records
}

// StreamView is one of its streams.
type StreamView struct {
	Window tracker.Sides[int64] // bytes that each side may still send on it
}

// inspectTime is how long a loop gets to answer.
const inspectTime = time.Second

// Inspect asks a connection's loop. False: no such connection is open, it speaks no HTTP/2, or track of it was lost.
func (s *Server) Inspect(id uint64) (HTTP2View, bool) {
	type answer struct {
		view HTTP2View
		ok   bool
	}
	answers := make(chan answer, len(s.workers))
	s.each(func(w *worker) {
		var a answer
		if k := w.sessions[id]; k != nil && k.h2 != nil {
			a.view, a.ok = k.inspect()
		}
		answers <- a
	})
	wait := time.NewTimer(inspectTime)
	defer wait.Stop()
	for range s.workers {
		select {
		case a := <-answers:
			if a.ok {
				return a.view, true
			}
		case <-wait.C:
			return HTTP2View{}, false
		}
	}
	return HTTP2View{}, false
}

func (s *session) inspect() (HTTP2View, bool) {
	in, ok := s.h2.Inspect()
	if !ok {
		return HTTP2View{}, false
	}
	out := HTTP2View{
		Window:    tracker.Sides[int64]{Client: in.Window[observe.FromClient], App: in.Window[observe.FromApp]},
		RoundTrip: [2]time.Duration{time.Duration(in.RoundTrip[observe.FromClient]), time.Duration(in.RoundTrip[observe.FromApp])},
		Streams:   make(map[uint32]StreamView, len(in.Streams)),
	}
	for _, st := range in.Streams {
		if t, ok := st.Stream.(*stream); ok {
			out.Streams[t.rec.Number()] = StreamView{Window: tracker.Sides[int64]{Client: st.Window[observe.FromClient], App: st.Window[observe.FromApp]}}
		}
	}
	return out, true
}
