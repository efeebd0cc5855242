package proxy

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/lastcall-proxy/lastcall/proxy/config"
	"github.com/lastcall-proxy/lastcall/proxy/intercept"
	"github.com/lastcall-proxy/lastcall/proxy/relay"
	"github.com/lastcall-proxy/lastcall/proxy/tlsterm"
	"github.com/lastcall-proxy/lastcall/tracker"
)

// listener is one address that is served. Immutable.
type listener struct {
	direction   tracker.Direction
	name        string
	app         relay.Target
	transparent bool // the app is where the connection was going before it was redirected
	proxyIn     bool // a PROXY protocol header may come first
	proxyMust   bool // and must
	forwarded   bool // HTTP/1 requests get the client's address in their heads
	proxyOut    int  // version of the header that the app gets; 0: none

	tls    *tlsterm.Terminator // nil: TLS is passed through
	appTLS *tlsterm.Originator // nil: plaintext to the app

	asked string // the address as configured
	fd    int
	local string // the address that was bound
}

// Listen opens every listener, or none.
func (s *Server) Listen(ctx context.Context) error {
	all, err := s.plan(ctx)
	if err != nil {
		return err
	}
	for i, l := range all {
		fd, local, err := intercept.Listen(ctx, l.asked)
		if err != nil {
			for j, o := range all {
				o.closeTLS()
				if j < i {
					_ = unix.Close(o.fd)
				}
			}
			return fmt.Errorf("proxy: listener %s: %w", l.name, err)
		}
		l.fd, l.local = fd, local
	}
	s.planned = all
	done := make(chan struct{})
	s.workers[0].loop.Do(func() {
		for _, l := range all {
			s.addListener(l)
		}
		close(done)
	})
	<-done
	for _, l := range all {
		s.addrs = append(s.addrs, l.local)
	}
	return nil
}

// addListener serves an open listener. Only on the first worker's loop.
func (s *Server) addListener(l *listener) {
	s.listeners = append(s.listeners, s.workers[0].loop.Listen(l.fd, func(fd int32, peer netip.AddrPort) { s.accepted(l, fd, peer) }, s.full))
}

// reopen opens the listeners again that a drain has closed and that was then cancelled. Only on the first worker's loop.
func (s *Server) reopen() {
	if len(s.listeners) > 0 || s.closed {
		return
	}
	for _, l := range s.planned {
		addr := l.asked
		if strings.HasSuffix(addr, ":0") { // the same port as before
			addr = l.local
		}
		fd, _, err := intercept.Listen(context.Background(), addr)
		if err != nil {
			s.cfg.Logger.Error("listener not reopened", zap.String("listener", l.name), zap.Error(err))
			continue
		}
		again := *l
		again.fd = fd
		s.addListener(&again)
	}
}

// plan turns the settings into listeners that are not open yet.
func (s *Server) plan(ctx context.Context) ([]*listener, error) {
	var all []*listener
	set := s.cfg.Settings
	for _, in := range set.Inbound {
		app, err := resolve(ctx, in.App)
		if err != nil {
			return nil, err
		}
		l := fromConfig(in, app)
		all = append(all, l)
		if err := s.openTLS(l, in); err != nil {
			for _, l := range all {
				l.closeTLS()
			}
			return nil, err
		}
	}
	if set.TransparentInbound != "" {
		all = append(all, &listener{direction: tracker.Inbound, name: set.TransparentInbound, asked: set.TransparentInbound, transparent: true})
	}
	if set.TransparentOutbound != "" {
		all = append(all, &listener{direction: tracker.Outbound, name: set.TransparentOutbound, asked: set.TransparentOutbound, transparent: true})
	}
	return all, nil
}

func fromConfig(in config.Listener, app relay.Target) *listener {
	l := &listener{name: in.Name, forwarded: in.ForwardedHeaders, asked: in.Listen, app: app, proxyIn: in.ProxyProtocol != "", proxyMust: in.ProxyProtocol == "require"}
	if l.name == "" {
		l.name = in.Listen
	}
	switch in.SendProxyProtocol {
	case "v1":
		l.proxyOut = 1
	case "v2":
		l.proxyOut = 2
	}
	return l
}

// Addrs are the listeners' addresses, in the order of the configuration.
func (s *Server) Addrs() []string { return s.addrs }

// accepted runs on the first loop and gives the connection to the loop that has the fewest.
func (s *Server) accepted(l *listener, fd int32, peer netip.AddrPort) {
	first := s.workers[0]
	app := &l.app
	refuse := ""
	if l.transparent {
		dst, err := intercept.OriginalDst(int(fd))
		if err != nil {
			refuse = err.Error()
		}
		app = &relay.Target{Addr: dst}
	}
	f := tracker.ConnFacts{Direction: l.direction, Listener: l.name, Client: peer.String(), App: targetString(*app)}
	if s.conns.Add(1) > s.limit {
		refuse = "over the connection limit"
	}
	if refuse != "" {
		s.conns.Add(-1)
		f.OpenedAt = first.loop.Now()
		c := first.shard.OpenConn(f)
		_ = unix.Close(int(fd))
		c.End(tracker.End{Fate: tracker.Rejected, By: tracker.ByLastcall, How: tracker.HowFIN, Reason: refuse, At: f.OpenedAt})
		return
	}
	least := first
	for _, w := range s.workers[1:] {
		if w.loop.Links() < least.loop.Links() {
			least = w
		}
	}
	if least == first {
		first.open(fd, peer, l, f, app)
		return
	}
	least.loop.Do(func() { least.open(fd, peer, l, f, app) })
}
