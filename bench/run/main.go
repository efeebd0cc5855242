// Command run measures the sidecar beside its peers: the same app, the same load, in turn, several rounds. It prints a
// table with medians, ratios and the limits that must hold, and writes them as JSON.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/lastcall-proxy/lastcall/bench/load"
	"github.com/lastcall-proxy/lastcall/bench/peers"
	"github.com/lastcall-proxy/lastcall/bench/report"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type bench struct {
	rounds int
	cell   time.Duration
	idle   int
	rep    report.Report
	peers  []*peers.Peer
	direct time.Duration // p50 without a proxy, of the scenario and round under way
	app    *peers.Peer
}

const ours, bare = "lastcall", "lastcall-bare"

func run(ctx context.Context) error {
	binary := flag.String("lastcall", "", "the binary under test")
	rounds := flag.Int("rounds", 5, "rounds; their medians count")
	cell := flag.Duration("cell", 2*time.Second, "how long each measurement takes")
	idle := flag.Int("idle", 5000, "idle connections for the memory figure")
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
	b := &bench{rounds: *rounds, cell: *cell, idle: *idle}
	b.rep.Machine = fmt.Sprintf("%d processors, %s/%s, %d rounds of %v", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, *rounds, *cell)
	appAddr := ""
	if b.app, err = peers.Start(ctx, dir, peers.App(), appAddr); err != nil {
		return err
	}
	defer b.app.Stop()
	for name, size := range map[string]int{"16k": 16 << 10, "bulk": 64 << 20} {
		if err := os.WriteFile(filepath.Join(dir, "app", name), make([]byte, size), 0o644); err != nil {
			return err
		}
	}
	specs := []peers.Spec{
		peers.Ours(*binary, ours), peers.HAProxy("tcp"), peers.HAProxy("http"), peers.Nginx(), peers.Envoy("http"), peers.Envoy("tcp"),
		peers.Ours(*binary, bare, "--observe=false"),
	}
	for _, s := range specs {
		p, err := peers.Start(ctx, dir, s, b.app.Addr)
		if err != nil {
			fmt.Fprintln(os.Stderr, "left out:", err)
			continue
		}
		defer p.Stop()
		b.peers = append(b.peers, p)
	}
	for _, p := range b.peers {
		_, resident, err := p.Memory()
		if err != nil {
			return err
		}
		b.rep.Add("resident at start", p.Name, "MiB", float64(resident)/(1<<20))
	}
	if err := b.measure(ctx); err != nil {
		return err
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

// measure visits the peers in order, then in reverse, so that drift hits them alike.
func (b *bench) measure(ctx context.Context) error {
	for round := range b.rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d\n", round+1, b.rounds)
		for _, s := range scenarios() {
			if s.latency {
				if err := b.one(ctx, s, "direct", b.app.Addr, nil); err != nil {
					return err
				}
			}
			for i := range b.peers {
				p := b.peers[i]
				if round%2 == 1 {
					p = b.peers[len(b.peers)-1-i]
				}
				if err := b.one(ctx, s, p.Name, p.Addr, p); err != nil {
					return err
				}
			}
		}
	}
	for _, p := range b.peers {
		if err := b.memory(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

type scenario struct {
	name, unit string
	latency    bool
	run        func(ctx context.Context, addr string, d time.Duration) (load.Result, error)
	per        func(r *load.Result) float64 // what the CPU time is divided by
}

func scenarios() []scenario {
	perRequest := func(r *load.Result) float64 { return float64(r.Requests) }
	closed := func(name, path string, conns int) scenario {
		return scenario{name: name, unit: "us/req", per: perRequest, run: func(ctx context.Context, addr string, d time.Duration) (load.Result, error) {
			return load.Closed(ctx, addr, path, conns, d)
		}}
	}
	open := func(name string, rate int) scenario {
		return scenario{name: name, unit: "us/req", latency: true, per: perRequest, run: func(ctx context.Context, addr string, d time.Duration) (load.Result, error) {
			return load.Open(ctx, addr, "/128", 20, rate, d)
		}}
	}
	return []scenario{
		closed("cpu 128B 1 conn", "/128", 1), closed("cpu 128B 50 conns", "/128", 50), closed("cpu 128B 500 conns", "/128", 500),
		closed("cpu 16KB 50 conns", "/16k", 50), closed("cpu 16KB 500 conns", "/16k", 500),
		open("cpu 1000/s", 1000), open("cpu 2000/s", 2000), open("cpu 5000/s", 5000),
		{name: "cpu short connection", unit: "us/conn", per: perRequest, run: func(ctx context.Context, addr string, d time.Duration) (load.Result, error) {
			return load.Short(ctx, addr, "/128", 10, d)
		}},
		{name: "cpu bulk", unit: "s/GB", per: func(r *load.Result) float64 { return float64(r.Bytes) / 1e9 * 1e6 }, run: func(ctx context.Context, addr string, d time.Duration) (load.Result, error) {
			return load.Closed(ctx, addr, "/bulk", 2, d)
		}},
	}
}

func (b *bench) one(ctx context.Context, s scenario, name, addr string, p *peers.Peer) error {
	var before time.Duration
	if p != nil {
		before = p.CPU()
	}
	r, err := s.run(ctx, addr, b.cell)
	if err != nil {
		return fmt.Errorf("%s, %s: %w", s.name, name, err)
	}
	if r.Errors > 0 {
		b.rep.Add(s.name+" errors", name, "", float64(r.Errors))
	}
	if p != nil {
		b.rep.Add(s.name, name, s.unit, float64((p.CPU()-before).Nanoseconds())/1e3/s.per(&r))
	}
	if s.latency {
		b.rep.Add("p50 "+s.name[4:], name, "us", float64(r.Percentile(0.5).Nanoseconds())/1e3)
		if p == nil {
			b.direct = r.Percentile(0.5)
		} else {
			b.rep.Add("added p50 "+s.name[4:], name, "us", float64((r.Percentile(0.5)-b.direct).Nanoseconds())/1e3)
		}
		b.rep.Add("p99 "+s.name[4:], name, "us", float64(r.Percentile(0.99).Nanoseconds())/1e3)
	} else if s.name == "cpu 128B 50 conns" {
		b.rep.Add("throughput 50 conns", name, "req/s", float64(r.Requests)/r.Took.Seconds())
	}
	return nil
}

// memory is what an idle kept connection costs, what idling costs, and how long the books take to read.
func (b *bench) memory(ctx context.Context, p *peers.Peer) error {
	anon, _, err := p.Memory()
	if err != nil {
		return err
	}
	conns, err := load.Idle(ctx, p.Addr, "/128", b.idle)
	defer func() {
		for _, c := range conns {
			_ = c.Close()
		}
		time.Sleep(500 * time.Millisecond) // so that the next peer does not pay for their ends
	}()
	if err != nil {
		fmt.Fprintf(os.Stderr, "idle connections of %s: %d of %d: %v\n", p.Name, len(conns), b.idle, err)
		return nil
	}
	time.Sleep(time.Second)
	after, _, err := p.Memory()
	if err != nil {
		return err
	}
	b.rep.Add("idle connection", p.Name, "KB", float64(after-anon)/1024/float64(b.idle))
	before := p.CPU()
	time.Sleep(3 * time.Second)
	b.rep.Add("cpu while idle", p.Name, "ms/s", float64((p.CPU()-before).Microseconds())/1e3/3)
	if p.Name != ours {
		return nil
	}
	for name, url := range map[string]string{"scrape": "http://" + p.Scrap + "/metrics", "list of 100": "http://" + p.Admin + "/v1/connections?limit=100"} {
		for range 7 {
			began := time.Now()
			if err := get(ctx, url); err != nil {
				return err
			}
			b.rep.Add(name+", idle connections open", p.Name, "ms", float64(time.Since(began).Microseconds())/1e3)
		}
	}
	return nil
}

func get(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	tr := &http.Transport{DisableKeepAlives: true}
	res, err := tr.RoundTrip(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	_, err = io.Copy(io.Discard, res.Body)
	return err
}
