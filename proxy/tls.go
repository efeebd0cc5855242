package proxy

import (
	"errors"
	"fmt"
	"syscall"

	"go.uber.org/zap"

	"github.com/lastcall-proxy/lastcall/proxy/config"
	"github.com/lastcall-proxy/lastcall/proxy/observe"
	"github.com/lastcall-proxy/lastcall/proxy/relay"
	"github.com/lastcall-proxy/lastcall/proxy/tlsterm"
	"github.com/lastcall-proxy/lastcall/tracker"
)

// SettingError is what is wrong with a listener's settings and only shows when its files are read.
type SettingError struct{ Err error }

func (e *SettingError) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e *SettingError) Unwrap() error { return e.Err }

// openTLS reads a listener's certificates.
func (s *Server) openTLS(l *listener, in config.Listener) (err error) {
	told := func(what string) func(error) {
		return func(err error) {
			if err != nil {
				s.cfg.Logger.Warn("certificate not reloaded", zap.String("listener", l.name), zap.String("of", what), zap.Error(err))
				return
			}
			s.cfg.Logger.Info("certificate reloaded", zap.String("listener", l.name), zap.String("of", what))
		}
	}
	if t := in.TLS; t != nil {
		l.tls, err = tlsterm.NewTerminator(tlsterm.Config{
			Cert: t.Cert, Key: t.Key, ClientCA: t.ClientCA, ClientAuth: t.ClientAuth, MinVersion: t.MinVersion, ALPN: t.ALPN,
			HandshakeTimeout: t.HandshakeTimeout, ReloadEvery: s.cfg.ReloadEvery, OnReload: told("tls"),
		})
		if err != nil {
			return &SettingError{fmt.Errorf("listener %s: tls: %w", l.name, err)}
		}
		s.cfg.Registry.ExpectHandshakeErrors(l.direction, tlsterm.Reasons())
	}
	if t := in.AppTLS; t != nil {
		l.appTLS, err = tlsterm.NewOriginator(tlsterm.AppConfig{
			CA: t.CA, ServerName: t.ServerName, Insecure: t.Insecure, Cert: t.Cert, Key: t.Key,
			ReloadEvery: s.cfg.ReloadEvery, OnReload: told("app_tls"),
		})
		if err != nil {
			return &SettingError{fmt.Errorf("listener %s: app_tls: %w", l.name, err)}
		}
		for _, reason := range tlsterm.Reasons() {
			s.cfg.Registry.ExpectDialErrors([]string{"tls_" + reason})
		}
	}
	return nil
}

func (l *listener) closeTLS() {
	if l.tls != nil {
		l.tls.Close()
	}
	if l.appTLS != nil {
		l.appTLS.Close()
	}
}

// secure is what a session with TLS on a side has more than others.
type secure struct {
	client, app *tlsterm.Side // nil: plaintext
	originator  *tlsterm.Originator
	over        bool          // the connection is closed
	shaking     bool          // the client's handshake is under way
	alpn        chan []string // what the app's handshake waits for: the protocol that the client has negotiated
}

// terminate puts TLS in front of an accepted socket and gives the loop's end of it.
func (s *session) terminate(l *listener, fd int32) (int32, error) {
	s.tls = &secure{originator: l.appTLS, alpn: make(chan []string, 1)}
	if l.tls == nil {
		s.tls.alpn <- nil
		return fd, nil
	}
	side, err := l.tls.Serve(int(fd), tlsterm.Events{Handshake: func(i tlsterm.Info, failed *tlsterm.HandshakeError) {
		s.w.loop.Do(func() { s.shaken(i, failed) })
	}})
	if err != nil {
		return 0, err
	}
	s.tls.client, s.tls.shaking = side, true
	s.conn.SetStage(tracker.StageHandshake)
	return int32(side.FD()), nil
}

// shaken takes the end of the client's handshake. Of a failed one the EOF behind it tells.
func (s *session) shaken(i tlsterm.Info, failed *tlsterm.HandshakeError) {
	if s.tls.over {
		return
	}
	s.conn.SetPeer(i.SNI, i.ALPN)
	if failed != nil {
		return
	}
	s.tls.shaking = false
	if i.Identity != "" {
		s.conn.SetIdentity(i.Identity)
	}
	stage := tracker.StageConnect
	if s.reached {
		stage = tracker.StageIdle
	}
	s.conn.SetStage(stage)
	var list []string
	if i.ALPN != "" {
		list = []string{i.ALPN}
	}
	s.tls.alpn <- list
}

// close lets whoever waits for the client's handshake go.
func (t *secure) close() {
	t.over = true
	close(t.alpn)
}

// originate puts TLS in front of the app's socket.
func (s *session) originate() {
	err := s.link.Wrap(observe.FromApp, func(fd int32) (int32, relay.Outer, error) {
		side, err := s.tls.originator.Serve(int(fd), s.tls.alpn, tlsterm.Events{Handshake: func(tlsterm.Info, *tlsterm.HandshakeError) {}})
		if err != nil {
			return -1, nil, err
		}
		s.tls.app = side
		return int32(side.FD()), side, nil
	})
	if err != nil {
		s.kill(tracker.End{Fate: tracker.Failed, By: tracker.ByLastcall, Reason: err.Error()})
	}
}

// brokenTLS names the end of a connection whose TLS failed, or was left without close_notify.
func (s *session) brokenTLS(side observe.Direction, err syscall.Errno) (e tracker.End, ok bool) {
	if s.tls == nil {
		return e, false
	}
	t := s.tls.client
	if side == observe.FromApp {
		t = s.tls.app
	}
	if t == nil || t.Err() != err {
		return e, false
	}
	failed := t.Failure()
	switch {
	case failed != nil && side == observe.FromApp:
		s.w.shard.DialError("tls_" + failed.Reason)
		return tracker.End{Fate: tracker.Unreachable, By: tracker.ByApp, How: tracker.HowProtocol, Reason: "TLS to the app: " + failed.Error()}, true
	case failed != nil:
		s.w.shard.HandshakeError(s.direction, failed.Reason)
		e = tracker.End{Fate: tracker.Aborted, By: tracker.ByLastcall, How: tracker.HowProtocol, Stage: tracker.StageHandshake, Reason: "TLS handshake: " + failed.Error()}
		switch {
		case failed.Timeout:
			e.Fate, e.How = tracker.TimedOut, tracker.HowTimeout
		case failed.Rejected:
			e.Fate = tracker.Rejected
		case failed.ByPeer:
			e.By = tracker.ByClient
			if errors.Is(failed, syscall.ECONNRESET) {
				e.How = tracker.HowRST
			} else if failed.Reason == tlsterm.ReasonPeerClosed {
				e.How = tracker.HowFIN
			}
		}
		return e, true
	case t.Cause() == tlsterm.Truncated:
		return tracker.End{By: party(side), How: tracker.HowFIN, Reason: "closed without close_notify"}, true
	case t.Cause() == tlsterm.Failed:
		return tracker.End{By: party(side), How: tracker.HowProtocol, Reason: "TLS alert or bad record"}, true
	}
	return e, false
}
