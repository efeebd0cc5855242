package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/lastcall-proxy/lastcall/bench/epoll"
	"github.com/lastcall-proxy/lastcall/bench/peers"
)

type scenario struct {
	name, unit string
	path       string
	conns      int
	rate       int // 0: as fast as answers come
	short      bool
	per        func(r *epoll.Result) float64 // what the CPU time is divided by
}

func scenarios() []scenario {
	perRequest := func(r *epoll.Result) float64 { return float64(r.Requests) }
	var all []scenario
	for _, size := range []struct{ name, path string }{{"128B", "/128"}, {"16KB", "/16k"}} {
		for _, n := range []int{1, 50, 500} {
			all = append(all, scenario{name: fmt.Sprintf("cpu %s, %d conns", size.name, n), unit: "us/req", path: size.path, conns: n, per: perRequest})
		}
	}
	for _, rate := range []int{1000, 2000, 5000} {
		all = append(all, scenario{name: fmt.Sprintf("cpu %d/s", rate), unit: "us/req", path: "/128", conns: 50, rate: rate, per: perRequest})
	}
	return append(all,
		scenario{name: "cpu short connection", unit: "us/conn", path: "/128", conns: 10, short: true, per: perRequest},
		scenario{name: "cpu bulk", unit: "s/GB", path: "/bulk", conns: 2, per: func(r *epoll.Result) float64 { return float64(r.Bytes) / 1e9 * 1e6 }},
	)
}

// target is a proxy under load, or the app itself (peer nil).
type target struct {
	name, addr string
	peer       *peers.Peer
	session    *epoll.Session
}

func (b *bench) speed(ctx context.Context) error {
	targets := []*target{{name: "direct", addr: b.app.Addr}}
	for _, s := range b.specs {
		p, err := peers.Start(ctx, b.dir, s, b.app.Addr)
		if err != nil {
			fmt.Fprintln(os.Stderr, "left out:", err)
			continue
		}
		defer p.Stop()
		targets = append(targets, &target{name: p.Name, addr: p.Addr, peer: p})
	}
	running := []*peers.Peer{b.app}
	for _, t := range targets[1:] {
		running = append(running, t.peer)
	}
	before, err := take(running...)
	if err != nil {
		return err
	}
	for _, s := range scenarios() {
		fmt.Fprintln(os.Stderr, s.name)
		if err := b.scenario(ctx, s, targets); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	after, err := take(running...)
	if err != nil {
		return err
	}
	b.rep.Elsewhere = after.elsewhere(before)
	return nil
}

// scenario keeps its connections to everybody open over all rounds and goes from one to the next within seconds, in order,
// then in reverse, so that the machine's drift hits all alike.
func (b *bench) scenario(ctx context.Context, s scenario, targets []*target) error {
	defer func() {
		for _, t := range targets {
			if t.session != nil {
				t.session.Close()
				t.session = nil
			}
		}
	}()
	for _, t := range targets {
		if s.short {
			continue
		}
		var err error
		if t.session, err = epoll.Dial(ctx, t.addr, s.path, s.conns); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
	}
	for round := range b.rounds {
		var direct epoll.Result // what the latencies are measured against
		for i := range targets {
			t := targets[i]
			if round%2 == 1 && i > 0 {
				t = targets[len(targets)-i]
			}
			if t.peer == nil && s.rate == 0 {
				continue
			}
			r, cpu, err := b.measure(ctx, s, t)
			if err != nil {
				return fmt.Errorf("%s: %w", t.name, err)
			}
			if t.peer == nil {
				direct = r
			}
			b.book(s, t, &r, &direct, cpu)
		}
	}
	return nil
}

// measure runs a tenth of the time unseen, so that caches and branch predictors have met the peer again.
func (b *bench) measure(ctx context.Context, s scenario, t *target) (epoll.Result, time.Duration, error) {
	once := func(d time.Duration) (epoll.Result, error) {
		switch {
		case s.short:
			return epoll.Short(ctx, t.addr, s.path, s.conns, d)
		case s.rate > 0:
			return t.session.Open(ctx, s.rate, d)
		}
		return t.session.Closed(ctx, d)
	}
	if _, err := once(b.cell / 10); err != nil {
		return epoll.Result{}, 0, err
	}
	if t.peer == nil {
		r, err := once(b.cell)
		return r, 0, err
	}
	before := t.peer.CPU()
	r, err := once(b.cell)
	if err != nil {
		return r, 0, err
	}
	cpu := t.peer.CPU() - before
	if cpu <= 0 {
		return r, 0, errors.New("no CPU time seen")
	}
	return r, cpu, nil
}

func (b *bench) book(s scenario, t *target, r, direct *epoll.Result, cpu time.Duration) {
	us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
	if t.peer != nil {
		b.rep.Add(s.name, t.name, s.unit, us(cpu)/s.per(r))
		b.rep.Add("errors", t.name, "", float64(r.Errors))
	}
	if s.name == "cpu 128B, 50 conns" {
		b.rep.Add("throughput 50 conns", t.name, "req/s", float64(r.Requests)/r.Took.Seconds())
	}
	if s.rate == 0 {
		return
	}
	for _, q := range []struct {
		name string
		at   float64
	}{{"p50", 0.5}, {"p99", 0.99}} {
		name := fmt.Sprintf("%s %d/s", q.name, s.rate)
		if t.peer == nil {
			b.rep.Add(name, t.name, "us", us(r.Percentile(q.at)))
			continue
		}
		b.rep.Add("added "+name, t.name, "us", us(r.Percentile(q.at)-direct.Percentile(q.at)))
	}
}
