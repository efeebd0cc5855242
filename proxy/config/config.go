// Package config is the sidecar's configuration as one neutral value: flags, environment and file (see Loader), or an xDS
// server, produce it; the proxy consumes it.
package config

import (
	"time"
)

// Config is a whole configuration, valid once Loader has returned it.
type Config struct {
	Inbound             []Listener
	TransparentInbound  string // where redirected inbound connections arrive; "": not served
	TransparentOutbound string

	Telemetry      string
	Admin          string
	AdminToken     string // contents of the token files
	HookToken      string
	adminTokenFile string
	hookTokenFile  string

	Lameduck      time.Duration
	DrainTimeout  time.Duration
	ClosingWindow time.Duration
	GracePeriod   time.Duration // the pod's; 0: unknown
	FinalScrape   time.Duration
	Late          string // reject, serve, refuse
	LongLived     string // wait, spread
	StrictExit    bool

	Observe        bool // false: relay without observers; for measuring what observing costs
	LongLivedAfter time.Duration
	MaxConnections int // 0: from the process's descriptor limit
	Loops          int // 0: one per processor, four at most
	DialTimeout    time.Duration
	IdleTimeout    time.Duration // 0: off
	KeepAlive      time.Duration // 0: the kernel's
	UserTimeout    time.Duration // TCP_USER_TIMEOUT; 0: off, since it also ends clients that merely don't read

	ReportFile         string
	Journal            string // file that tells the next start what this process had open when it died
	TerminationMessage string
	FateLog            string // a file, or - for stderr
	FateLogRequests    int    // ordinary requests' lines per second; -1: all, 0: none
	LogLevel           string
	LogFormat          string // json, console
	DropPaths          bool
	IdentityHeader     string // request header that tells clients apart, in lower case; empty: none

	Probes   []string // user agents' prefixes of kubelet probes
	Scrapers []string // user agents' prefixes of Prometheus scrapes

	Pod, Namespace, Node string

	// Notes are what the log should say of the values chosen, such as times that shrank to fit.
	Notes []string
}

// Listener is one address that is served for an app.
type Listener struct {
	Name              string  `yaml:"name"`                // the `listener` label in records; default: the address
	Listen            string  `yaml:"listen"`              // host:port or :port
	App               string  `yaml:"app"`                 // host:port or unix:PATH
	ProxyProtocol     string  `yaml:"proxy_protocol"`      // "", accept, require
	SendProxyProtocol string  `yaml:"send_proxy_protocol"` // "", v1, v2
	ForwardedHeaders  bool    `yaml:"forwarded_headers"`   // X-Forwarded-For and Forwarded into HTTP/1 requests
	TLS               *TLS    `yaml:"tls"`                 // terminate; nil: passed through
	AppTLS            *AppTLS `yaml:"app_tls"`             // TLS to the app; nil: plaintext
}

// TLS is how a listener terminates TLS. Paths are of PEM files, which may change while they are in use.
type TLS struct {
	Cert             string        `yaml:"cert"`
	Key              string        `yaml:"key"`
	ClientCA         string        `yaml:"client_ca"`
	ClientAuth       string        `yaml:"client_auth"`       // none, request, require; default: require with a client_ca
	MinVersion       string        `yaml:"min_version"`       // 1.2 (default), 1.3
	ALPN             []string      `yaml:"alpn"`              // default: h2, http/1.1
	HandshakeTimeout time.Duration `yaml:"handshake_timeout"` // default 10s
}

// AppTLS is how TLS to the app is made.
type AppTLS struct {
	CA         string `yaml:"ca"` // default: the system's
	ServerName string `yaml:"server_name"`
	Insecure   bool   `yaml:"insecure"` // its certificate is not verified
	Cert       string `yaml:"cert"`
	Key        string `yaml:"key"`
}

// DefaultProbes are the user agents of kubelet probes.
func DefaultProbes() []string { return []string{"kube-probe/"} }

// DefaultScrapers are the user agents of Prometheus.
func DefaultScrapers() []string { return []string{"Prometheus/"} }

// Public is the configuration without its secrets, in the file's own form: snake_case keys, durations as they are written.
func (c *Config) Public() map[string]any {
	inbound := make([]map[string]any, 0, len(c.Inbound))
	for _, l := range c.Inbound {
		inbound = append(inbound, map[string]any{"name": l.Name, "listen": l.Listen, "app": l.App, "proxy_protocol": l.ProxyProtocol, "send_proxy_protocol": l.SendProxyProtocol, "forwarded_headers": l.ForwardedHeaders, "tls": l.TLS, "app_tls": l.AppTLS})
	}
	return map[string]any{
		"inbound": inbound, "transparent_inbound": c.TransparentInbound, "transparent_outbound": c.TransparentOutbound,
		"telemetry": c.Telemetry, "admin": c.Admin, "admin_token_file": c.adminTokenFile, "hook_token_file": c.hookTokenFile,
		"lameduck": c.Lameduck.String(), "drain_timeout": c.DrainTimeout.String(), "closing_window": c.ClosingWindow.String(), "grace_period": c.GracePeriod.String(), "final_scrape": c.FinalScrape.String(),
		"late": c.Late, "long_lived": c.LongLived, "strict_exit": c.StrictExit, "long_lived_after": c.LongLivedAfter.String(), "max_connections": c.MaxConnections, "loops": c.Loops,
		"dial_timeout": c.DialTimeout.String(), "idle_timeout": c.IdleTimeout.String(), "tcp_keepalive": c.KeepAlive.String(), "tcp_user_timeout": c.UserTimeout.String(),
		"report_file": c.ReportFile, "journal": c.Journal, "termination_message": c.TerminationMessage, "fate_log": c.FateLog, "fate_log_requests": c.FateLogRequests,
		"log_level": c.LogLevel, "log_format": c.LogFormat, "drop_paths": c.DropPaths, "identity_header": c.IdentityHeader, "probe_agents": c.Probes, "scrape_agents": c.Scrapers, "pod": c.Pod, "namespace": c.Namespace, "node": c.Node,
	}
}
