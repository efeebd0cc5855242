package main

import (
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/lastcall-proxy/lastcall/proxy/config"
)

// settings are the flags of run.
type settings struct {
	inbound                    []string
	lameduck, timeout, closing time.Duration
	late                       string
	fateLog, reportFile        string
	termination                string
	maxConns                   int
	listeners                  []config.Listener
}

// validate checks everything before anything listens. Lameduck and closing window shrink with a short timeout, to a quarter
// of it each, unless they were set by hand: then it is an error when they do not fit.
func (s *settings) validate(changed func(string) bool) error {
	for _, d := range []struct {
		flag string
		v    time.Duration
	}{{"lameduck", s.lameduck}, {"drain-timeout", s.timeout}, {"closing-window", s.closing}} {
		if d.v < 0 {
			return fmt.Errorf("--%s %v: must not be negative", d.flag, d.v)
		}
	}
	if !changed("lameduck") {
		s.lameduck = min(s.lameduck, s.timeout/4)
	}
	if !changed("closing-window") {
		s.closing = min(s.closing, s.timeout/4)
	}
	if s.lameduck+s.closing > s.timeout {
		return fmt.Errorf("--lameduck %v and --closing-window %v do not fit into --drain-timeout %v", s.lameduck, s.closing, s.timeout)
	}
	if s.late != "reject" && s.late != "serve" && s.late != "refuse" {
		return fmt.Errorf("--late %q: want reject, serve or refuse", s.late)
	}
	if s.maxConns < 0 {
		return fmt.Errorf("--max-connections %d: must not be negative", s.maxConns)
	}
	if len(s.inbound) == 0 {
		return fmt.Errorf("--inbound: at least one LISTEN=APP is needed")
	}
	seen := make(map[string]bool)
	for _, v := range s.inbound {
		listen, app, ok := strings.Cut(v, "=")
		if !ok {
			return fmt.Errorf("--inbound %q: want LISTEN=APP", v)
		}
		if _, _, err := net.SplitHostPort(listen); err != nil {
			return fmt.Errorf("--inbound %q: listen address: %w", v, err)
		}
		if path, isUnix := strings.CutPrefix(app, "unix:"); isUnix && path == "" {
			return fmt.Errorf("--inbound %q: app: unix: needs a path", v)
		} else if _, _, err := net.SplitHostPort(app); err != nil && !isUnix {
			return fmt.Errorf("--inbound %q: app: %w", v, err)
		}
		if seen[listen] {
			return fmt.Errorf("--inbound %q: %s is served twice", v, listen)
		}
		seen[listen] = true
		s.listeners = append(s.listeners, config.Listener{Name: listen, Listen: listen, App: app})
	}
	return nil
}
