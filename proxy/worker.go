package proxy

import (
	"github.com/lastcall-proxy/lastcall/proxy/relay"
	"github.com/lastcall-proxy/lastcall/tracker"
)

// worker is one event loop with the sessions on it and the shard of the registry that it owns.
type worker struct {
	// Immutable.
	srv   *Server
	loop  *relay.Loop
	shard *tracker.Shard

	// Owned by the loop.
	sessions  map[uint64]*session
	telling   bool // farewells are said
	rejecting bool // late arrivals are refused
	free      []*stream
}

// maxFreeStreams bounds the stream handles that a worker keeps for reuse.
const maxFreeStreams = 256

func (w *worker) takeStream() *stream {
	if n := len(w.free); n > 0 {
		t := w.free[n-1]
		w.free = w.free[:n-1]
		return t
	}
	return &stream{}
}

func (w *worker) giveStream(t *stream) {
	t.sess, t.rec = nil, nil
	if len(w.free) < maxFreeStreams {
		w.free = append(w.free, t)
	}
}

// open takes over an accepted client socket.
func (w *worker) open(fd int32, f tracker.ConnFacts, app relay.Target) {
	f.OpenedAt = w.loop.Now()
	s := &session{w: w, app: app}
	s.conn = w.shard.OpenConn(f)
	link, err := w.loop.Attach(fd, s)
	if err != nil {
		s.conn.End(tracker.End{Fate: tracker.Failed, By: tracker.ByLastcall, Reason: err.Error(), At: f.OpenedAt})
		w.srv.conns.Add(-1)
		return
	}
	s.link = link
	w.sessions[s.conn.ID()] = s
	if w.rejecting {
		s.rejecting = true // an app is dialled only for a probe
		return
	}
	s.dial()
}
