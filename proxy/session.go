package proxy

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/lastcall-proxy/lastcall/proxy/observe"
	"github.com/lastcall-proxy/lastcall/proxy/observe/detect"
	"github.com/lastcall-proxy/lastcall/proxy/observe/http1"
	"github.com/lastcall-proxy/lastcall/proxy/observe/http2"
	"github.com/lastcall-proxy/lastcall/proxy/observe/opaque"
	"github.com/lastcall-proxy/lastcall/proxy/observe/tlshello"
	"github.com/lastcall-proxy/lastcall/proxy/observe/websocket"
	"github.com/lastcall-proxy/lastcall/proxy/relay"
	"github.com/lastcall-proxy/lastcall/tracker"
)

// session is one connection: it stands between the link that moves its bytes, the observer that reads them and the
// record that is kept of them, and it decides the connection's fate. Everything in it belongs to its loop.
type session struct {
	w    *worker
	link *relay.Link
	conn *tracker.Conn
	obs  observe.Observer // nil until the first byte
	app  *relay.Target
	h2   *http2.Observer // obs, or what it handed over to; nil: not HTTP/2

	preface   *preface // nil once it is over
	tls       *secure  // nil: plaintext on both sides
	direction tracker.Direction
	forwarded []byte // header lines for requests; nil: none

	opened    int64
	active    int64 // when bytes last came from either side
	protocol  observe.Kind
	dialled   bool
	reached   bool
	rejecting bool // a late connection under --late=reject: no byte of it is passed on unless it is a probe's
	firstFIN  observe.Direction
	anyFIN    bool
	finishing bool
	rejected  bool   // a late request of it was refused
	lost      bool   // its observer has lost track: opaque from then on
	ended     bool   // a stream of it was ended politely
	kicked    string // why an operator ended it; empty: none did
	parted    bool   // told by a rehearsal to go elsewhere with what is new
	held      bool   // by a rehearsal: no byte moves
	leftHeld  bool   // the client gave up while it was held
	begun     bool   // its first stream was opened
	unwelcome bool   // came while a rehearsal refused new connections

	// The first explicit cause of its end. decided says that there is one.
	decided bool
	end     tracker.End
}

func party(d observe.Direction) tracker.Party {
	if d == observe.FromClient {
		return tracker.ByClient
	}
	return tracker.ByApp
}

// decide keeps the first cause.
func (s *session) decide(e tracker.End) {
	if !s.decided {
		s.decided, s.end = true, e
	}
}

func (s *session) dial() {
	if !s.dialled {
		s.dialled = true
		s.link.Dial(*s.app)
	}
}

// Connected is relay.Owner's.
func (s *session) Connected() {
	s.reached = true
	if s.tls != nil && s.tls.originator != nil {
		s.originate()
	}
	if s.tls == nil || !s.tls.shaking {
		s.conn.SetStage(tracker.StageIdle)
	}
}

// DialFailed is relay.Owner's.
func (s *session) DialFailed(err syscall.Errno, timeout bool) {
	how, reason := tracker.HowRST, dialReason(err)
	fate, by := tracker.Unreachable, tracker.ByApp
	switch {
	case timeout || err == unix.ETIMEDOUT:
		how, reason = tracker.HowTimeout, "timeout"
	case err == unix.EMFILE || err == unix.ENFILE || err == unix.EADDRNOTAVAIL:
		fate, by, how = tracker.Failed, tracker.ByLastcall, tracker.HowUnknown
	}
	s.w.shard.DialError(reason)
	s.decide(tracker.End{Fate: fate, By: by, How: how, Stage: tracker.StageConnect, Reason: fmt.Sprintf("dial %s: %s", targetString(*s.app), errnoText(err, timeout))})
}

// Data is relay.Owner's.
func (s *session) Data(dir observe.Direction, p []byte) []observe.Edit {
	s.active = s.w.loop.Now()
	s.conn.AddBytes(party(dir), len(p), s.active)
	if s.preface != nil && dir == observe.FromClient {
		return s.prefaced(p)
	}
	if s.obs == nil {
		s.begin(dir, p)
	}
	return s.obs.Data(dir, p)
}

// begin picks the observer by the first bytes.
func (s *session) begin(dir observe.Direction, p []byte) {
	is := detect.Opaque
	switch {
	case s.w.srv.cfg.Unobserved:
	case dir == observe.FromClient:
		is = detect.Of(p)
	default:
		is = detect.OfApp(p)
	}
	if is == detect.Undecided {
		s.obs = detect.New(s.choose)
	} else {
		s.obs = s.choose(is)
	}
	if s.rejecting {
		s.obs.Tell(observe.OrderReject)
		if is == detect.TLS {
			s.refuse()
		}
		return
	}
	s.tellPhase()
}

func (s *session) choose(is detect.Protocol) observe.Observer {
	switch is {
	case detect.TLS:
		return tlshello.New(s)
	case detect.HTTP1:
		return http1.New(s, http1.Options{Upgrade: s.upgrade, Pool: &s.w.exchanges, Forwarded: s.forwarded, Identity: s.w.srv.cfg.Settings.IdentityHeader})
	case detect.HTTP2:
		s.h2 = http2.New(s, s.http2Options())
		return s.h2
	case detect.Opaque, detect.Undecided:
	}
	return opaque.New(s)
}

func (s *session) http2Options() http2.Options {
	return http2.Options{Pool: &s.w.http2, Identity: s.w.srv.cfg.Settings.IdentityHeader, WebSocket: newWebSocket, Now: s.w.now}
}

func newWebSocket(sink observe.Sink, st observe.Stream) observe.Observer {
	return websocket.New(sink, st)
}

func (s *session) upgrade(sink observe.Sink, st observe.Stream, r *observe.Request) observe.Observer {
	switch r.Kind {
	case observe.WebSocket:
		return websocket.New(sink, st)
	case observe.HTTP2:
		s.h2 = http2.NewUpgraded(sink, st, r.Settings, s.http2Options())
		return s.h2
	default:
		return nil
	}
}

// refuse resets a late connection of a protocol that has no word for it.
func (s *session) refuse() {
	s.conn.Answer(tracker.AnswerRejected)
	s.decide(tracker.End{Fate: tracker.Rejected, By: tracker.ByLastcall, How: tracker.HowRST, Stage: tracker.StageIdle, Reason: s.refusal()})
	s.w.loop.Do(s.link.Kill) // not from inside the link's own call
}

// tellPhase gives a new observer the orders that the others already have.
func (s *session) tellPhase() {
	if s.w.telling {
		s.obs.Tell(observe.OrderFarewell)
	}
	if s.w.rejecting {
		s.obs.Tell(observe.OrderReject)
	}
}

// EOF is relay.Owner's.
func (s *session) EOF(dir observe.Direction) []observe.Edit {
	if !s.anyFIN {
		s.anyFIN, s.firstFIN = true, dir
	}
	s.conn.HalfClosed(party(dir), s.w.loop.Now())
	var edits []observe.Edit
	if s.preface != nil && dir == observe.FromClient {
		edits = s.prefaceEOF()
	}
	if s.obs != nil {
		edits = append(edits, s.obs.EOF(dir)...)
	}
	if !s.dialled && dir == observe.FromClient { // a late connection that left by itself: there is no app to wait for
		s.link.FinishNext()
	}
	return edits
}

// Reset is relay.Owner's.
func (s *session) Reset(side observe.Direction, err syscall.Errno) bool {
	inFlight := s.conn.Streams() > 0
	by, how := party(side), tracker.HowRST
	if err == unix.ETIMEDOUT {
		how = tracker.HowTimeout
	}
	if inFlight && s.anyFIN && s.firstFIN != side && !s.opaque() {
		by, how = party(s.firstFIN), tracker.HowFIN // it left first; the other side only drew the conclusion
	}
	e := tracker.End{By: by, How: how, Reason: err.Error()}
	if s.leftHeld {
		e.Reason = leftHeldReason
	}
	if broken, ok := s.brokenTLS(side, err); ok {
		e = broken
	}
	gentle := e.How == tracker.HowFIN && !inFlight // nothing was cut short
	switch {
	case e.Fate != tracker.FateOpen:
	case inFlight:
		e.Fate = tracker.Aborted
	case s.conn.Told():
		e.Fate = tracker.Drained
	default:
		e.Fate = tracker.Completed
	}
	s.decide(e)
	// The app answered in full and then reset because it did not want the rest of the upload: the client must get the answer.
	return gentle || side == observe.FromApp && !inFlight && s.obs != nil && !s.obs.Idle()
}

// opaque tells whether a FIN from both sides is this connection's own way to end.
func (s *session) opaque() bool {
	return s.lost || s.protocol == observe.TCP || s.protocol == observe.TLS || s.protocol == observe.Tunnel
}

// Blocked is relay.Owner's.
func (s *session) Blocked(side observe.Direction, blocked bool) { s.conn.Blocked(party(side), blocked) }

// Closed is relay.Owner's: the one place that books the end.
func (s *session) Closed() {
	now := s.w.loop.Now()
	if s.tls != nil {
		s.tls.close()
	}
	if !s.decided {
		s.end = s.conclude()
	}
	s.end.At = now
	if s.conn.Streams() > 0 {
		s.conn.EndStreams(s.streamEnd())
	}
	if c, ok := s.obs.(interface{ Close() }); ok {
		c.Close()
	}
	s.unhold()
	delete(s.w.sessions, s.conn.ID())
	s.conn.End(s.end)
	s.w.srv.conns.Add(-1)
}

// conclude names the end of a connection that both sides left by FIN.
func (s *session) conclude() tracker.End {
	e := tracker.End{Fate: tracker.Completed, By: party(s.firstFIN), How: tracker.HowFIN}
	switch {
	case !s.anyFIN:
		e.Fate, e.By, e.How, e.Reason = tracker.Failed, tracker.ByLastcall, tracker.HowUnknown, "closed without a cause"
	case s.conn.Streams() > 0 && !s.opaque():
		e.Fate = tracker.Aborted
	case s.conn.Told():
		e.Fate = tracker.Drained
	}
	if s.leftHeld && e.Reason == "" {
		e.Reason = leftHeldReason
	}
	return e
}

// streamEnd is the connection's end for the streams that it takes along.
func (s *session) streamEnd() tracker.End {
	e := s.end
	if e.Fate == tracker.Drained { // left with something in flight after all
		e.Fate = tracker.Completed
		if !s.opaque() {
			e.Fate = tracker.Aborted
		}
	}
	return e
}

// farewell tells the observer to say goodbye.
func (s *session) farewell() {
	s.release()
	if s.obs != nil {
		s.link.Apply(s.obs.Tell(observe.OrderFarewell))
	}
}

func (s *session) reject() {
	s.release()
	if s.obs != nil {
		s.link.Apply(s.obs.Tell(observe.OrderReject))
	}
}

func (s *session) serve() {
	s.rejecting = false
	if s.obs != nil {
		s.link.Apply(s.obs.Tell(observe.OrderServe))
	}
	s.dial()
}

func (s *session) idle() bool { return s.conn.Streams() == 0 && (s.obs == nil || s.obs.Idle()) }

// closeIdle sends an idle connection home.
func (s *session) closeIdle() {
	if s.finishing || !s.idle() {
		return
	}
	if s.protocol == observe.HTTP2 && !s.lost { // its last GOAWAY first, then CloseAfter
		s.link.Apply(s.obs.Tell(observe.OrderReject))
		return
	}
	e := tracker.End{Fate: tracker.Drained, By: tracker.ByLastcall, How: tracker.HowFIN, Stage: tracker.StageIdle}
	if s.rejecting {
		e.Fate, e.Reason = tracker.Rejected, s.refusal()
		s.conn.Answer(tracker.AnswerRejected)
	} else {
		s.conn.Farewell(tracker.FarewellFIN, true, s.w.loop.Now())
	}
	s.decide(e)
	s.finish()
}

// endPolitely is the closing window's turn for this connection.
func (s *session) endPolitely(fate tracker.Fate, by tracker.Party, reason string) {
	if s.finishing {
		return
	}
	s.release()
	if fate == tracker.Kicked {
		s.kicked = reason
	}
	if s.idle() {
		if fate == tracker.Ended {
			s.closeIdle()
			return
		}
	} else if !s.opaque() {
		s.link.Apply(s.obs.Tell(observe.OrderEnd))
		return
	}
	s.conn.Farewell(tracker.FarewellFIN, true, s.w.loop.Now())
	s.decide(tracker.End{Fate: fate, By: by, How: tracker.HowFIN, Reason: reason})
	s.finish()
}

func (s *session) finish() {
	s.finishing = true
	s.link.Finish()
}

// kill closes at once, with the reason given.
func (s *session) kill(e tracker.End) {
	s.decide(e)
	s.link.Kill()
}
