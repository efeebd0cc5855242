package main

import (
	"fmt"
	"net"
	"net/netip"
	"os"
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
	telemetry, admin           string
	adminTokenFile             string
	hookTokenFile              string
	adminToken, hookToken      string
	finalScrape                time.Duration
	maxConns                   int
	listeners                  []config.Listener
}

// validate checks everything before anything listens. Lameduck and closing window shrink with a short timeout, to a quarter
// of it each, unless they were set by hand: then it is an error when they do not fit.
func (s *settings) validate(changed func(string) bool) error {
	for _, d := range []struct {
		flag string
		v    time.Duration
	}{{"lameduck", s.lameduck}, {"drain-timeout", s.timeout}, {"closing-window", s.closing}, {"final-scrape", s.finalScrape}} {
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
	if err := s.readTokens(); err != nil {
		return err
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

// readTokens reads the token files. An admin API that others can reach needs one.
func (s *settings) readTokens() error {
	for _, t := range []struct {
		flag, file string
		to         *string
	}{{"admin-token-file", s.adminTokenFile, &s.adminToken}, {"hook-token-file", s.hookTokenFile, &s.hookToken}} {
		if t.file == "" {
			continue
		}
		b, err := os.ReadFile(t.file)
		if err != nil {
			return fmt.Errorf("--%s: %w", t.flag, err)
		}
		if *t.to = strings.TrimSpace(string(b)); *t.to == "" {
			return fmt.Errorf("--%s: %s is empty", t.flag, t.file)
		}
	}
	host, _, err := net.SplitHostPort(s.admin)
	if err != nil {
		return fmt.Errorf("--admin %q: %w", s.admin, err)
	}
	if _, _, err := net.SplitHostPort(s.telemetry); err != nil {
		return fmt.Errorf("--telemetry %q: %w", s.telemetry, err)
	}
	if ip, err := netip.ParseAddr(host); s.adminToken == "" && host != "localhost" && (err != nil || !ip.IsLoopback()) {
		return fmt.Errorf("--admin %q: not on loopback it needs --admin-token-file", s.admin)
	}
	return nil
}
