package proxy

import (
	"net/netip"
	"time"

	"github.com/lastcall-proxy/lastcall/proxy/observe"
	"github.com/lastcall-proxy/lastcall/proxy/observe/http1"
	"github.com/lastcall-proxy/lastcall/proxy/observe/http2"
	"github.com/lastcall-proxy/lastcall/proxy/relay"
	"github.com/lastcall-proxy/lastcall/tracker"
)

// worker is one event loop with the sessions on it and the shard of the registry that it owns.
type worker struct {
	// Immutable.
	srv   *Server
	loop  *relay.Loop
	shard *tracker.Shard
	now   func() int64 // the loop's clock; one value for all connections

	// Owned by the loop.
	sessions  map[uint64]*session
	telling   bool // farewells are said
	rejecting bool // late arrivals are refused
	refusing  bool // a rehearsal refuses new connections
	free      []*stream
	exchanges http1.Pool
	http2     http2.Pool
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
func (w *worker) open(fd int32, peer netip.AddrPort, l *listener, f tracker.ConnFacts, app *relay.Target) {
	now := w.loop.Now()
	f.OpenedAt, _ = w.loop.Arrived(fd)
	s := &session{w: w, app: app, opened: f.OpenedAt, active: now}
	s.direction, s.conn = f.Direction, w.shard.OpenConn(f)
	var link *relay.Link
	var err error
	if l.tls != nil || l.appTLS != nil {
		fd, err = s.terminate(l, fd)
	}
	if err == nil {
		link, err = w.loop.Attach(fd, s)
	}
	if err != nil {
		s.conn.End(tracker.End{Fate: tracker.Failed, By: tracker.ByLastcall, Reason: err.Error(), At: now})
		w.srv.conns.Add(-1)
		return
	}
	s.link = link
	if s.tls != nil && s.tls.client != nil {
		link.SetOuter(observe.FromClient, s.tls.client)
	}
	w.sessions[s.conn.ID()] = s
	if l.forwarded {
		proto := "http"
		if l.tls != nil {
			proto = "https"
		}
		s.forwarded = forwardedLines(peer.Addr(), proto)
	}
	if l.proxyIn || l.proxyOut != 0 {
		s.preface = newPreface(l, fd, peer)
		if !l.proxyIn {
			s.link.Apply(s.preface.toApp())
			s.preface = nil
		}
	}
	s.unwelcome = w.refusing
	if w.rejecting || w.refusing {
		s.rejecting = true // an app is dialled only for a probe
		return
	}
	s.dial()
}

// sweep closes connections that were silent both ways for as long as the idle timeout, a quarter of it late at most.
func (w *worker) sweep(idle time.Duration) {
	for _, k := range w.sessions {
		if w.loop.Now()-k.active >= int64(idle) {
			k.kill(tracker.End{Fate: tracker.TimedOut, By: tracker.ByLastcall, How: tracker.HowTimeout, Reason: "idle timeout"})
		}
	}
	w.loop.After(idle/4, func() { w.sweep(idle) })
}
