package proxy

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/lastcall-proxy/lastcall/proxy/intercept"
	"github.com/lastcall-proxy/lastcall/proxy/observe"
	"github.com/lastcall-proxy/lastcall/tracker"
)

// preface is what stands before a connection's own bytes: the PROXY protocol header that its client's side may send, and
// the one that the app gets. With a header wanted from the client, the app's is sent when the client's first bytes have
// decided; an app that speaks first must not be combined with that.
type preface struct {
	in       intercept.ProxyParser
	out      int // version for the app; 0: none
	src, dst netip.AddrPort
}

func newPreface(l *listener, fd int32, peer netip.AddrPort) *preface {
	p := &preface{in: intercept.ProxyParser{Require: l.proxyMust}, out: l.proxyOut, src: peer}
	if sa, err := unix.Getsockname(int(fd)); err == nil {
		p.dst = intercept.AddrPort(sa)
	}
	return p
}

// toApp is the edit that tells the app who is behind the connection.
func (p *preface) toApp() []observe.Edit {
	if p.out == 0 {
		return nil
	}
	return []observe.Edit{{Dir: observe.FromClient, Insert: intercept.AppendProxyHeader(nil, p.out, p.src, p.dst)}}
}

// prefaced handles the client's bytes while its header may still be coming.
func (s *session) prefaced(b []byte) []observe.Edit {
	h, rest, done, err := s.preface.in.Feed(b)
	if err != nil {
		s.decide(tracker.End{Fate: tracker.Rejected, By: tracker.ByLastcall, How: tracker.HowRST, Stage: tracker.StageHandshake, Reason: err.Error()})
		s.w.loop.Do(s.link.Kill) // not from inside the link's own call
		done = false
	}
	drop := observe.Edit{Dir: observe.FromClient, Drop: len(b)}
	if !done {
		return []observe.Edit{drop}
	}
	return s.prefaceDone(h, rest, drop)
}

// prefaceDone passes on what came behind the header, or instead of it.
func (s *session) prefaceDone(h *intercept.ProxyHeader, rest []byte, drop observe.Edit) []observe.Edit {
	p := s.preface
	s.preface = nil
	if h != nil && h.Known {
		p.src, p.dst = h.Source, h.Dest
		s.conn.SetClient(h.Source.String())
		if s.forwarded != nil {
			s.forwarded = forwardedLines(h.Source.Addr(), "http")
		}
	}
	for _, e := range p.toApp() {
		drop.Insert = append(drop.Insert, e.Insert...)
	}
	edits := []observe.Edit{drop}
	if len(rest) == 0 {
		return edits
	}
	if s.obs == nil {
		s.begin(observe.FromClient, rest)
	}
	at := 0
	for _, e := range s.obs.Data(observe.FromClient, rest) {
		if e.Dir == observe.FromClient {
			edits[0].Insert = append(append(edits[0].Insert, rest[at:e.Off]...), e.Insert...)
			at = e.Off + e.Drop
			continue
		}
		edits = append(edits, e)
	}
	edits[0].Insert = append(edits[0].Insert, rest[at:]...)
	return edits
}

// prefaceEOF handles a FIN in the middle of what might have been a header.
func (s *session) prefaceEOF() []observe.Edit {
	rest, err := s.preface.in.EOF()
	if err != nil {
		s.decide(tracker.End{Fate: tracker.Aborted, By: tracker.ByClient, How: tracker.HowFIN, Stage: tracker.StageHandshake, Reason: err.Error()})
		s.link.FinishNext()
		s.preface = nil
		return nil
	}
	return s.prefaceDone(nil, rest, observe.Edit{Dir: observe.FromClient})
}
