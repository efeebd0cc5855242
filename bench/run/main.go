// Command run measures the sidecar beside its peers: the same app, the same load, in turn, several rounds. It prints a
// table with medians, ratios and the limits that must hold, and writes them as JSON.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/lastcall-proxy/lastcall/bench/peers"
	"github.com/lastcall-proxy/lastcall/bench/report"
)

func main() {
	// A broken pipe, too, ends the run through its defers: peers would outlive it otherwise.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGPIPE)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// ours is the binary as it is shipped, bare the same without observers.
const ours, bare = "lastcall", "lastcall-bare"

type bench struct {
	rounds int
	cell   time.Duration
	idle   int
	dir    string
	specs  []peers.Spec
	rep    report.Report
	app    *peers.Peer
}

func run(ctx context.Context) error {
	binary := flag.String("lastcall", "", "the binary under test")
	rounds := flag.Int("rounds", 7, "rounds; their medians count")
	cell := flag.Duration("cell", time.Second, "how long each measurement takes")
	only := flag.String("only", "", "http1, http2 or http2-memory: a part of the run")
	idle := flag.Int("idle", 6000, "idle connections for the memory figures")
	jsonFile := flag.String("json", "", "where the JSON goes")
	flag.Parse()
	dir, err := os.MkdirTemp("", "lastcall-bench-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.Chmod(dir, 0o755); err != nil { // nginx's worker is another user
		return err
	}
	b := &bench{rounds: *rounds, cell: *cell, idle: *idle, dir: dir}
	b.rep.Machine = fmt.Sprintf("%d processors, %s/%s, %d rounds of %v, %d idle connections", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, *rounds, *cell, *idle)
	b.rep.Versions = make(map[string]string)
	if b.app, err = peers.Start(ctx, dir, peers.App(), ""); err != nil {
		return err
	}
	defer b.app.Stop()
	for name, size := range map[string]int{"16k": 16 << 10, "bulk": 64 << 20} {
		if err := os.WriteFile(filepath.Join(dir, "app", name), make([]byte, size), 0o644); err != nil {
			return err
		}
	}
	b.specs = []peers.Spec{
		peers.Ours(*binary, ours), peers.HAProxy("tcp"), peers.HAProxy("http"), peers.Nginx(), peers.Envoy("http"), peers.Envoy("tcp"),
		peers.Ours(*binary, bare, "--observe=false"),
	}
	// Memory first, each peer in a fresh process: what a burst has left in a heap would hide what connections cost.
	for _, s := range b.specs {
		if strings.HasPrefix(*only, "http2") {
			break
		}
		b.rep.Versions[s.Name] = s.Version(ctx)
		fmt.Fprintln(os.Stderr, "idle connections:", s.Name)
		if err := b.memory(ctx, s); err != nil {
			fmt.Fprintf(os.Stderr, "left out: idle connections of %s: %v\n", s.Name, err)
		}
	}
	if !strings.HasPrefix(*only, "http2") {
		if err := b.speed(ctx); err != nil {
			return err
		}
	}
	if *only != "http1" {
		if err := b.http2Memory(ctx, *binary); err != nil {
			fmt.Fprintln(os.Stderr, "left out: idle HTTP/2:", err)
		}
		if *only != "http2-memory" {
			if err := b.http2(ctx, *binary); err != nil {
				return err
			}
		}
	}
	b.rep.Judge(limits())
	if err := b.rep.Print(os.Stdout); err != nil {
		return err
	}
	if *jsonFile == "" {
		return nil
	}
	f, err := os.Create(*jsonFile)
	if err != nil {
		return err
	}
	if err := b.rep.JSON(f); err != nil {
		return err
	}
	return f.Close()
}
