package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/lastcall-proxy/lastcall/bench/peers"
)

// h2scenario is h2load against nghttpd, or with unary calls against a grpc-go server: so many connections with so many
// streams at once.
type h2scenario struct {
	protocol       string
	conns, streams int
}

func (s h2scenario) name() string {
	return fmt.Sprintf("cpu %s, %d x %d", s.protocol, s.conns, s.streams)
}

func h2scenarios(protocol string) []h2scenario {
	return []h2scenario{{protocol, 10, 10}, {protocol, 1, 100}}
}

// http2 goes from peer to peer as the HTTP/1 scenarios do.
func (b *bench) http2(ctx context.Context, binary string) error {
	for _, name := range []string{"h2load", "nghttpd"} {
		if _, err := exec.LookPath(name); err != nil {
			fmt.Fprintf(os.Stderr, "left out: HTTP/2: %s is not installed (Debian: nghttp2)\n", name)
			return nil
		}
	}
	dir := filepath.Join(b.dir, "h2files")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "128"), make([]byte, 128), 0o644); err != nil {
		return err
	}
	app, err := peers.Start(ctx, b.dir, peers.AppHTTP2(dir), "")
	if err != nil {
		return err
	}
	defer app.Stop()
	if err := b.http2Scenarios(ctx, binary, "http2", app.Addr, "/128"); err != nil {
		return err
	}
	echo, stop, err := startEcho(ctx)
	if err != nil {
		return err
	}
	defer stop()
	body := filepath.Join(b.dir, "message")
	if err := os.WriteFile(body, append([]byte{0, 0, 0, 0, 100}, make([]byte, 100)...), 0o600); err != nil { // one message of 100 bytes
		return err
	}
	return b.http2Scenarios(ctx, binary, "grpc", echo, "/bench.Echo/Call", "-d", body, "-H", "content-type: application/grpc", "-H", "te: trailers")
}

func (b *bench) http2Scenarios(ctx context.Context, binary, protocol, app, path string, args ...string) error {
	us, without := peers.Ours(binary, ours), peers.Ours(binary, bare, "--observe=false")
	var running []*peers.Peer
	for _, s := range []peers.Spec{us, without, peers.HAProxy("tcp"), peers.HAProxyHTTP2(), peers.NginxStream(), peers.NginxGRPC(), peers.EnvoyHTTP2(1), peers.EnvoyHTTP2(2)} {
		p, err := peers.Start(ctx, filepath.Join(b.dir, protocol), s, app)
		if err != nil {
			fmt.Fprintln(os.Stderr, "left out:", err)
			continue
		}
		defer p.Stop()
		running = append(running, p)
	}
	for _, s := range h2scenarios(protocol) {
		fmt.Fprintln(os.Stderr, s.name())
		for round := range b.rounds {
			for i := range running {
				p := running[i]
				if round%2 == 1 {
					p = running[len(running)-1-i]
				}
				if err := b.h2cell(ctx, s, p, path, args...); err != nil {
					return fmt.Errorf("%s: %s: %w", s.name(), p.Name, err)
				}
			}
		}
	}
	return nil
}

var h2total = regexp.MustCompile(`requests: \d+ total, \d+ started, (\d+) done, (\d+) succeeded, (\d+) failed`)

func (b *bench) h2cell(ctx context.Context, s h2scenario, p *peers.Peer, path string, args ...string) error {
	seconds := max(1, int(b.cell.Round(time.Second).Seconds()))
	before := p.CPU()
	all := append([]string{"-c", strconv.Itoa(s.conns), "-m", strconv.Itoa(s.streams), "-t", "1", "-D", strconv.Itoa(seconds)}, args...)
	out, err := exec.CommandContext(ctx, "h2load", append(all, "http://"+p.Addr+path)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("h2load: %w: %s", err, out)
	}
	cpu := p.CPU() - before
	m := h2total.FindSubmatch(out)
	if m == nil {
		return fmt.Errorf("h2load said: %s", out)
	}
	done, _ := strconv.Atoi(string(m[2]))
	failed, _ := strconv.Atoi(string(m[3]))
	if done == 0 || cpu <= 0 {
		return errors.New("no request succeeded")
	}
	b.rep.Add(s.name(), p.Name, "us/req", float64(cpu.Nanoseconds())/1e3/float64(done))
	b.rep.Add("errors", p.Name, "", float64(failed))
	return nil
}
