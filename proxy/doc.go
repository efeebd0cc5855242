// Package proxy is the sidecar's server: it owns the listeners and the event loops and wires relay, observers, drain and
// tracker together. Configuration arrives as a value; facts leave through the registry.
package proxy
