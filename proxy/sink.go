package proxy

import (
	"bytes"

	"github.com/lastcall-proxy/lastcall/proxy/observe"
	"github.com/lastcall-proxy/lastcall/tracker"
)

// kinds maps an observer's kinds to the tracker's.
var kinds = [...]tracker.Kind{
	observe.TCP: tracker.KindTCP, observe.TLS: tracker.KindTLS, observe.HTTP1: tracker.KindHTTP1, observe.SSE: tracker.KindSSE,
	observe.WebSocket: tracker.KindWebSocket, observe.Tunnel: tracker.KindTunnel, observe.HTTP2: tracker.KindHTTP2, observe.GRPC: tracker.KindGRPC,
}

// Begin is observe.Sink's.
func (s *session) Begin(k observe.Kind) observe.Stream {
	at := s.w.loop.Now()
	if !s.begun { // its first bytes may have waited for us
		s.begun = true
		_, at = s.link.Arrived()
		at = max(at, s.opened)
	}
	st := s.w.takeStream()
	st.sess, st.rec = s, s.conn.OpenStream(kinds[k], at)
	return st
}

// Protocol is observe.Sink's.
func (s *session) Protocol(k observe.Kind) {
	s.protocol = k
	s.conn.SetKind(kinds[k])
	if k == observe.HTTP2 && s.rejecting { // whether it is a probe's only its first stream tells, and many clients wait for the app's SETTINGS
		s.rejecting = false
		s.dial()
	}
}

// Hello is observe.Sink's.
func (s *session) Hello(sni, alpn, _ string) { s.conn.SetPeer(sni, alpn) }

// Admit is observe.Sink's: probes and scrapes are answered in every phase.
func (s *session) Admit(r *observe.Request) bool {
	if s.w.classOf(r) == tracker.ClassNormal {
		return false
	}
	if s.rejecting {
		s.rejecting = false
		s.conn.Answer(tracker.AnswerServed)
	}
	s.dial()
	return true
}

// Farewell is observe.Sink's.
func (s *session) Farewell(own bool) {
	kind := tracker.FarewellConnectionClose
	switch s.protocol {
	case observe.WebSocket:
		kind = tracker.FarewellWebSocketClose
	case observe.HTTP2:
		kind = tracker.FarewellGoAway
	default:
	}
	s.conn.Farewell(kind, own, s.w.loop.Now())
}

// CloseAfter is observe.Sink's.
func (s *session) CloseAfter() {
	if s.rejected && (s.protocol == observe.TCP || s.protocol == observe.TLS) {
		s.refuse()
		return
	}
	e := tracker.End{Fate: tracker.Drained, By: tracker.ByLastcall, How: tracker.HowProtocol}
	switch {
	case s.ended:
		e.Fate, e.By, e.Reason = s.politely()
	case s.rejected && (s.unwelcome || s.conn.Late()):
		e.Fate, e.Stage, e.Reason = tracker.Rejected, tracker.StageRequest, s.refusal()
		s.conn.Answer(tracker.AnswerRejected)
	}
	s.decide(e)
	s.finishing = true
	s.link.FinishNext()
}

// LostTrack is observe.Sink's.
func (s *session) LostTrack(reason string) {
	s.lost = true
	s.w.shard.LostTrack(kinds[s.protocol], reason)
}

// politely is the fate of what we ended with a goodbye.
func (s *session) politely() (tracker.Fate, tracker.Party, string) {
	if s.kicked != "" {
		return tracker.Kicked, tracker.ByOperator, s.kicked
	}
	return tracker.Ended, tracker.ByLastcall, "closing window"
}

const kickedReason = "closed through the API"

// Broken is observe.Sink's.
func (s *session) Broken(reason string) {
	s.w.shard.LostTrack(kinds[s.protocol], reason)
	s.decide(tracker.End{Fate: tracker.Failed, By: tracker.ByLastcall, How: tracker.HowRST, Reason: reason})
	s.w.loop.Do(s.link.Kill) // not from inside the link's own call
}

// healthCheck is the call that probes are made of (grpc.health.v1, KEP-2727), whoever makes it.
const healthCheck = "/grpc.health.v1.Health/Check"

// classOf tells the cluster's own traffic by its user agent, and health checks by their path.
func (w *worker) classOf(r *observe.Request) tracker.Class {
	agent := r.UserAgent
	if r.Kind == observe.GRPC && string(r.Path) == healthCheck {
		return tracker.ClassProbe
	}
	for _, p := range w.srv.probes {
		if bytes.HasPrefix(agent, p) {
			return tracker.ClassProbe
		}
	}
	for _, p := range w.srv.scrapers {
		if bytes.HasPrefix(agent, p) {
			return tracker.ClassScrape
		}
	}
	return tracker.ClassNormal
}

// stream is observe.Stream over a tracker record. Reused by its worker.
type stream struct {
	sess *session
	rec  *tracker.Stream
}

// Head is observe.Stream's.
func (t *stream) Head(r *observe.Request) {
	t.rec.SetHead(r.Method, r.Path, r.Authority, r.UserAgent, r.Identity)
	if c := t.sess.w.classOf(r); c != tracker.ClassNormal {
		t.rec.SetClass(c)
	}
}

// Status is observe.Stream's.
func (t *stream) Status(code int) { t.rec.SetStatus(code) }

// GRPCStatus is observe.Stream's.
func (t *stream) GRPCStatus(code int) { t.rec.SetGRPCStatus(code) }

// HalfClosed is observe.Stream's.
func (t *stream) HalfClosed(d observe.Direction) { t.rec.HalfClosed(party(d), t.sess.w.loop.Now()) }

// SetKind is observe.Stream's.
func (t *stream) SetKind(k observe.Kind) { t.rec.SetKind(kinds[k]) }

// State is observe.Stream's.
func (t *stream) State(w observe.Waiting, g observe.Stage) {
	t.rec.SetWaiting([...]tracker.WaitingOn{observe.WaitingClient: tracker.WaitingClient, observe.WaitingApp: tracker.WaitingApp, observe.WaitingEither: tracker.WaitingEither}[w])
	t.rec.SetStage([...]tracker.Stage{observe.StageRequest: tracker.StageRequest, observe.StageResponse: tracker.StageResponse, observe.StageTunnel: tracker.StageTunnel}[g])
}

// Bytes is observe.Stream's.
func (t *stream) Bytes(d observe.Direction, n int) { t.rec.AddBytes(party(d), n) }

// Message is observe.Stream's.
func (t *stream) Message(d observe.Direction) { t.rec.AddMessage(party(d)) }

// Done is observe.Stream's.
func (t *stream) Done(o observe.Outcome) {
	s := t.sess
	e := tracker.End{How: tracker.HowProtocol, By: party(o.By), CloseCode: o.CloseCode, Reason: o.Reason, At: s.w.loop.Now()}
	if o.Reset != "" {
		e.How, e.ResetCode = tracker.HowRST, o.Reset
	}
	switch o.Verdict {
	case observe.Completed:
		e.Fate = tracker.Completed
	case observe.Aborted:
		e.Fate = tracker.Aborted
	case observe.Ended:
		e.Fate, e.By, e.Reason = s.politely()
		if o.Reason != "" {
			e.Reason = o.Reason // of this stream alone
		} else {
			s.ended = true
		}
	case observe.Rejected:
		e.Fate, e.By, e.Stage, s.rejected = tracker.Rejected, tracker.ByLastcall, tracker.StageRequest, true
		if e.Reason == "" {
			e.Reason = s.refusal()
		}
		if s.opaque() { // it has no word but RST
			e.How = tracker.HowRST
		}
	}
	t.rec.End(e)
	s.w.giveStream(t)
}
