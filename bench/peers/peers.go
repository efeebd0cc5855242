// Package peers starts and stops the proxies that a benchmark compares, ours among them: each a process with one listening
// address in front of the same app, configured as lean as it goes.
package peers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Peer is a running proxy.
type Peer struct {
	Name  string
	Addr  string
	Admin string // ours: the admin API
	Scrap string // ours: telemetry
	cmd   *exec.Cmd
	ended chan struct{} // closed when the process is gone
}

// Spec says how to start a peer.
type Spec struct {
	Name   string
	Binary string
	ours   bool
	config func(p ports) string // "" when it has none
	args   func(p ports) []string
}

// Version is what the binary says of itself.
func (s Spec) Version(ctx context.Context) string {
	arg := "-v"
	switch {
	case s.ours:
		arg = "version"
	case strings.HasPrefix(s.Name, "envoy"):
		arg = "--version"
	}
	b, err := exec.CommandContext(ctx, s.Binary, arg).CombinedOutput()
	if err != nil {
		return "unknown"
	}
	if s.ours {
		return strings.TrimSpace(string(b))
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(b)), "\n")
	numbers := regexp.MustCompile(`\d+\.\d+\.\d+[^\s/]*`).FindAllString(line, -1) // some say first where they are installed
	if len(numbers) == 0 {
		return "unknown"
	}
	return numbers[len(numbers)-1]
}

type ports struct {
	dir, listen, app, config string
	telemetry, admin         string
}

// Ours is the binary under test, with one loop.
func Ours(binary, name string, extra ...string) Spec {
	return Spec{Name: name, Binary: binary, ours: true, args: func(p ports) []string {
		return append([]string{"run", "--inbound", p.listen + "=" + p.app, "--telemetry", p.telemetry, "--admin", p.admin, "--loops", "1", "--fate-log", os.DevNull, "--termination-message", ""}, extra...)
	}}
}

// HAProxy in TCP or HTTP mode, one thread.
func HAProxy(mode string) Spec {
	return Spec{Name: "haproxy-" + mode, Binary: "haproxy", args: fileArg("-f"), config: func(p ports) string {
		reuse := ""
		if mode == "http" {
			reuse = "  http-reuse always\n"
		}
		return "global\n  nbthread 1\n  maxconn 9000\ndefaults\n  mode " + mode + "\n  timeout connect 5s\n  timeout client 10m\n  timeout server 10m\n  timeout http-keep-alive 10m\n" + reuse +
			"listen l\n  bind " + p.listen + "\n  server s " + p.app + "\n"
	}}
}

// Nginx in HTTP mode, one worker, kept upstream connections.
func Nginx() Spec {
	return Spec{Name: "nginx-http", Binary: "nginx", args: fileArg("-c"), config: func(p ports) string {
		return nginxHead(p.dir) + "http { access_log off; keepalive_requests 100000000; keepalive_timeout 10m;\n" +
			" upstream u { server " + p.app + "; keepalive 600; keepalive_requests 100000000; keepalive_timeout 10m; }\n" +
			" server { listen " + p.listen + " backlog=4096; location / { proxy_pass http://u; proxy_http_version 1.1; proxy_set_header Connection \"\"; proxy_set_header Host bench; } } }\n"
	}}
}

// Envoy with an HTTP connection manager, or tcp_proxy.
func Envoy(mode string) Spec {
	return Spec{Name: "envoy-" + mode, Binary: "envoy", args: envoyArgs(1), config: func(p ports) string {
		filter := `{name: envoy.filters.network.tcp_proxy, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy, stat_prefix: t, cluster: app, idle_timeout: 0s}}`
		if mode == "http" {
			filter = `{name: envoy.filters.network.http_connection_manager, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager, stat_prefix: h, http_filters: [{name: envoy.filters.http.router, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}], route_config: {virtual_hosts: [{name: v, domains: ["*"], routes: [{match: {prefix: "/"}, route: {cluster: app}}]}]}}}`
		}
		return "static_resources:\n  listeners:\n  - address: " + envoyAddr(p.listen) + "\n    filter_chains: [{filters: [" + filter + "]}]\n" +
			"  clusters:\n  - {name: app, type: STATIC, connect_timeout: 5s, circuit_breakers: {thresholds: [{max_connections: 20000, max_pending_requests: 20000, max_requests: 20000}]}, load_assignment: {cluster_name: app, endpoints: [{lb_endpoints: [{endpoint: {address: " + envoyAddr(p.app) + "}}]}]}}\n"
	}}
}

func envoyArgs(workers int) func(ports) []string {
	return func(p ports) []string {
		return []string{"-c", p.config, "--disable-hot-restart", "--concurrency", strconv.Itoa(workers), "--log-level", "error"}
	}
}

// App is the workload behind everybody: nginx with a ready answer of 128 bytes, and files beside its configuration.
func App() Spec {
	return Spec{Name: "app", Binary: "nginx", args: fileArg("-c"), config: func(p ports) string {
		return nginxHead(p.dir) + "http { access_log off; sendfile on; tcp_nopush on; keepalive_requests 100000000; keepalive_timeout 10m; root " + p.dir + "; open_file_cache max=10 inactive=10m; default_type text/plain;\n" +
			" server { listen " + p.listen + " backlog=4096; location = /128 { return 200 \"" + strings.Repeat("x", 128) + "\"; } } }\n"
	}}
}

func nginxHead(dir string) string {
	return "worker_processes 1; daemon off; pid " + dir + "/pid; error_log " + dir + "/error.log crit;\nevents { worker_connections 16000; }\n"
}

func fileArg(flag string) func(ports) []string {
	return func(p ports) []string { return []string{flag, p.config} }
}

func envoyAddr(a string) string {
	host, port, _ := net.SplitHostPort(a)
	return "{socket_address: {address: " + host + ", port_value: " + port + "}}"
}

// Start runs a peer in front of app and waits until it accepts.
func Start(ctx context.Context, dir string, s Spec, app string) (*Peer, error) {
	p := ports{dir: filepath.Join(dir, s.Name), app: app}
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		return nil, fmt.Errorf("peers: %w", err)
	}
	var err error
	for _, a := range []*string{&p.listen, &p.telemetry, &p.admin} {
		if *a, err = freeAddr(ctx); err != nil {
			return nil, err
		}
	}
	if s.config != nil {
		p.config = filepath.Join(p.dir, "config.yaml")
		if err := os.WriteFile(p.config, []byte(s.config(p)), 0o600); err != nil {
			return nil, fmt.Errorf("peers: %w", err)
		}
	}
	log, err := os.Create(filepath.Join(p.dir, "log"))
	if err != nil {
		return nil, fmt.Errorf("peers: %w", err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.CommandContext(ctx, s.Binary, s.args(p)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("peers: %s: %w", s.Name, err)
	}
	peer := &Peer{Name: s.Name, Addr: p.listen, Admin: p.admin, Scrap: p.telemetry, cmd: cmd, ended: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(peer.ended)
	}()
	if peer.listens() {
		return peer, nil
	}
	peer.Stop()
	said, _ := os.ReadFile(filepath.Join(p.dir, "log"))
	return nil, fmt.Errorf("peers: %s did not listen; it said: %s", s.Name, strings.TrimSpace(string(said)))
}

// listens waits until the address answers, or until nothing will.
func (p *Peer) listens() bool {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(15 * time.Second); time.Now().Before(deadline); {
		if c, err := net.Dial("tcp", p.Addr); err == nil {
			_ = c.Close()
			return true
		}
		select {
		case <-p.ended:
			return false
		case <-tick.C:
		}
	}
	return false
}

// Stop ends the peer and its workers.
func (p *Peer) Stop() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.ended
}

// Signal sends sig to the peer.
func (p *Peer) Signal(sig syscall.Signal) error { return p.cmd.Process.Signal(sig) }

// pids are the process and its children: nginx works in one.
func (p *Peer) pids() []int {
	all := []int{p.cmd.Process.Pid}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", all[0], all[0]))
	if err != nil {
		return all
	}
	for f := range strings.FieldsSeq(string(b)) {
		if n, err := strconv.Atoi(f); err == nil {
			all = append(all, n)
		}
	}
	return all
}

// CPU is the time that the peer has used, from the scheduler's own account of each thread (nanoseconds, not ticks).
func (p *Peer) CPU() time.Duration {
	var sum time.Duration
	for _, pid := range p.pids() {
		files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				continue
			}
			if first, _, ok := strings.Cut(string(b), " "); ok {
				if n, err := strconv.ParseInt(first, 10, 64); err == nil {
					sum += time.Duration(n)
				}
			}
		}
	}
	return sum
}

// ErrNoMemory says that /proc did not tell.
var ErrNoMemory = errors.New("peers: no memory figures")

// Memory is the anonymous (user) memory and the whole resident set, in bytes.
func (p *Peer) Memory() (anon, resident int64, err error) {
	for _, pid := range p.pids() {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return 0, 0, fmt.Errorf("peers: %w", err)
		}
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			if len(f) < 2 {
				continue
			}
			n, _ := strconv.ParseInt(f[1], 10, 64)
			switch f[0] {
			case "RssAnon:":
				anon += n << 10
			case "VmRSS:":
				resident += n << 10
			}
		}
	}
	if resident == 0 {
		return 0, 0, ErrNoMemory
	}
	return anon, resident, nil
}

func freeAddr(ctx context.Context) (string, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("peers: %w", err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String(), nil
}

func replaceOnce(s, old, with string) string {
	if !strings.Contains(s, old) {
		panic("peers: configuration without " + old)
	}
	return strings.Replace(s, old, with, 1)
}
