// Package config is the sidecar's configuration as one neutral value: flags, environment and file, or an xDS server,
// produce it; the proxy consumes it.
package config

import "time"

// Config is a whole configuration.
type Config struct {
	Inbound        []Listener
	Probes         []string      // user agents' prefixes of kubelet probes
	Scrapers       []string      // user agents' prefixes of Prometheus scrapes
	MaxConnections int           // 0: from the process's descriptor limit
	DialTimeout    time.Duration // 0: 10s
}

// Listener is one address that is served for an app.
type Listener struct {
	Name   string // the `listener` label in records; default: the address
	Listen string // host:port or :port
	App    string // host:port or unix:PATH
}

// DefaultProbes and DefaultScrapers are the user agents of the cluster's own traffic.
func DefaultProbes() []string { return []string{"kube-probe/"} }

// DefaultScrapers is the user agent of Prometheus.
func DefaultScrapers() []string { return []string{"Prometheus/"} }
