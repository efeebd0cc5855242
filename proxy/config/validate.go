package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
)

// parseInbound reads LISTEN=APP[,option=value…].
func parseInbound(v string) (Listener, error) {
	spec, options, _ := strings.Cut(v, ",")
	listen, app, ok := strings.Cut(spec, "=")
	if !ok {
		return Listener{}, errors.New("want LISTEN=APP")
	}
	l := Listener{Listen: listen, App: app}
	for opt := range strings.SplitSeq(options, ",") {
		if opt == "" {
			continue
		}
		name, val, _ := strings.Cut(opt, "=")
		switch {
		case name == "name":
			l.Name = val
		case name == "proxy-protocol":
			l.ProxyProtocol = val
		case name == "send-proxy-protocol":
			l.SendProxyProtocol = val
		case name == "forwarded-headers":
			on, err := strconv.ParseBool(val)
			if err != nil {
				return l, fmt.Errorf("option forwarded-headers=%s: want true or false", val)
			}
			l.ForwardedHeaders = on
		case strings.HasPrefix(name, "tls-"), strings.HasPrefix(name, "app-tls-"):
			if err := l.tlsOption(name, val); err != nil {
				return l, fmt.Errorf("option %s: %w", name, err)
			}
		default:
			return l, fmt.Errorf("unknown option %q", name)
		}
	}
	return l, l.validate()
}

func (l *Listener) validate() error {
	if err := checkAddress(l.Listen); err != nil {
		return fmt.Errorf("listen address %q: %w", l.Listen, err)
	}
	if path, isUnix := strings.CutPrefix(l.App, "unix:"); isUnix {
		if path == "" || len(path) > 107 { // sun_path with its NUL
			return fmt.Errorf("app %q: want a path of 1 to 107 bytes", l.App)
		}
	} else if err := checkAddress(l.App); err != nil {
		return fmt.Errorf("app %q: %w", l.App, err)
	}
	switch l.ProxyProtocol {
	case "", "accept", "require":
	default:
		return fmt.Errorf("proxy protocol %q: want accept or require", l.ProxyProtocol)
	}
	switch l.SendProxyProtocol {
	case "", "v1", "v2":
	default:
		return fmt.Errorf("send proxy protocol %q: want v1 or v2", l.SendProxyProtocol)
	}
	if l.Name == "" {
		l.Name = l.Listen
	}
	return l.validateTLS()
}

func checkAddress(a string) error {
	_, port, err := net.SplitHostPort(a)
	if err != nil {
		return errors.New("want host:port or :port")
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("port %q: want 0 to 65535", port)
	}
	return nil
}

// finish settles the times and checks everything that depends on more than one value.
func (c *Config) finish(set func(flag string) bool) error {
	for _, d := range []struct {
		flag string
		v    time.Duration
	}{
		{"lameduck", c.Lameduck}, {"drain-timeout", c.DrainTimeout}, {"closing-window", c.ClosingWindow}, {"grace-period", c.GracePeriod}, {"final-scrape", c.FinalScrape},
		{"long-lived-after", c.LongLivedAfter}, {"dial-timeout", c.DialTimeout}, {"idle-timeout", c.IdleTimeout}, {"tcp-keepalive", c.KeepAlive}, {"tcp-user-timeout", c.UserTimeout},
	} {
		if d.v < 0 {
			return fmt.Errorf("--%s %v: must not be negative", d.flag, d.v)
		}
	}
	if err := c.times(set); err != nil {
		return err
	}
	for _, e := range []struct {
		flag, v string
		of      []string
	}{
		{"late", c.Late, []string{"reject", "serve", "refuse"}}, {"long-lived", c.LongLived, []string{"wait", "spread"}},
		{"log-level", c.LogLevel, []string{"debug", "info", "warn", "error"}}, {"log-format", c.LogFormat, []string{"json", "console"}},
	} {
		if !contains(e.of, e.v) {
			return fmt.Errorf("--%s %q: want one of %s", e.flag, e.v, strings.Join(e.of, ", "))
		}
	}
	if c.MaxConnections < 0 {
		return fmt.Errorf("--max-connections %d: must not be negative", c.MaxConnections)
	}
	if c.Loops < 0 || c.Loops > 64 {
		return fmt.Errorf("--loops %d: want 0 to 64", c.Loops)
	}
	if c.IdentityHeader = strings.ToLower(c.IdentityHeader); c.IdentityHeader != "" && !httpguts.ValidHeaderFieldName(c.IdentityHeader) {
		return fmt.Errorf("--identity-header %q: not a header's name", c.IdentityHeader)
	}
	if c.FateLogRequests < -1 {
		return fmt.Errorf("--fate-log-requests %d: want -1 or more", c.FateLogRequests)
	}
	if err := c.tokens(); err != nil {
		return err
	}
	return c.addresses()
}

func contains(list []string, v string) bool {
	for _, s := range list {
		if s == v {
			return true
		}
	}
	return false
}

// times fits the drain's parts into its deadline.
func (c *Config) times(set func(string) bool) error {
	if !set("drain-timeout") {
		c.DrainTimeout = 30 * time.Second
		if c.GracePeriod > 0 {
			c.DrainTimeout = max(c.GracePeriod-2*time.Second, c.GracePeriod/2)
		}
	}
	if c.DrainTimeout == 0 {
		return errors.New("--drain-timeout 0s: must be more than nothing")
	}
	for _, d := range []struct {
		flag string
		v    *time.Duration
	}{{"lameduck", &c.Lameduck}, {"closing-window", &c.ClosingWindow}} {
		if most := c.DrainTimeout / 4; !set(d.flag) && *d.v > most {
			c.Notes = append(c.Notes, fmt.Sprintf("%s is %v instead of %v, to fit into a drain of %v", d.flag, most, *d.v, c.DrainTimeout))
			*d.v = most
		}
	}
	if c.Lameduck+c.ClosingWindow > c.DrainTimeout {
		return fmt.Errorf("--lameduck %v and --closing-window %v do not fit into --drain-timeout %v", c.Lameduck, c.ClosingWindow, c.DrainTimeout)
	}
	return nil
}

func (c *Config) tokens() error {
	for _, t := range []struct {
		flag, file string
		to         *string
	}{{"admin-token-file", c.adminTokenFile, &c.AdminToken}, {"hook-token-file", c.hookTokenFile, &c.HookToken}} {
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
	return nil
}

func (c *Config) addresses() error {
	if err := checkAddress(c.Admin); err != nil {
		return fmt.Errorf("--admin %q: %w", c.Admin, err)
	}
	host, _, _ := net.SplitHostPort(c.Admin)
	if ip, err := netip.ParseAddr(host); c.AdminToken == "" && host != "localhost" && (err != nil || !ip.IsLoopback()) {
		return fmt.Errorf("--admin %q: not on loopback it needs --admin-token-file", c.Admin)
	}
	type address struct{ what, addr string }
	all := []address{{"--telemetry", c.Telemetry}, {"--admin", c.Admin}, {"--transparent-inbound", c.TransparentInbound}, {"--transparent-outbound", c.TransparentOutbound}}
	for _, l := range c.Inbound {
		all = append(all, address{"--inbound", l.Listen})
	}
	seen := make(map[string]string)
	for _, a := range all {
		if a.addr == "" {
			continue
		}
		if err := checkAddress(a.addr); err != nil {
			return fmt.Errorf("%s %q: %w", a.what, a.addr, err)
		}
		if _, port, _ := net.SplitHostPort(a.addr); port == "0" {
			continue // each gets a port of its own
		}
		if other, dup := seen[a.addr]; dup {
			return fmt.Errorf("%s %q: the address is taken by %s", a.what, a.addr, other)
		}
		seen[a.addr] = a.what
	}
	if len(c.Inbound) == 0 && c.TransparentInbound == "" && c.TransparentOutbound == "" {
		return errors.New("--inbound: nothing to serve: at least one LISTEN=APP, or a transparent listener, is needed")
	}
	return nil
}
