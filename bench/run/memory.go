package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/lastcall-proxy/lastcall/bench/epoll"
	"github.com/lastcall-proxy/lastcall/bench/peers"
)

// settle is how long a peer gets to do what it does after its last event: it only makes figures calmer, nothing waits on it.
const settle = time.Second

// memory is what a fresh process takes, what an idle kept connection costs it, what idling costs, and how long the books
// take to read.
func (b *bench) memory(ctx context.Context, s peers.Spec) error {
	p, err := peers.Start(ctx, b.dir, s, b.app.Addr)
	if err != nil {
		return err
	}
	defer p.Stop()
	_, resident, err := p.Memory()
	if err != nil {
		return err
	}
	b.rep.Add("resident at start", p.Name, "MiB", float64(resident)/(1<<20))
	// Code paths, tables and pools that every process needs at its first requests are not the connections' cost.
	warm, err := epoll.Dial(ctx, p.Addr, "/128", 20)
	if err != nil {
		return err
	}
	_, err = warm.Closed(ctx, 200*time.Millisecond)
	warm.Close()
	if err != nil {
		return err
	}
	time.Sleep(settle)
	anon, _, err := p.Memory()
	if err != nil {
		return err
	}
	conns, err := epoll.Dial(ctx, p.Addr, "/128", b.idle)
	if err != nil {
		return err
	}
	defer conns.Close()
	time.Sleep(settle)
	after, _, err := p.Memory()
	if err != nil {
		return err
	}
	b.rep.Add("idle connection", p.Name, "KB", float64(after-anon)/1024/float64(b.idle))
	const idling = 2 * time.Second
	before := p.CPU()
	time.Sleep(idling)
	b.rep.Add("cpu while idle", p.Name, "ms/s", (p.CPU()-before).Seconds()*1e3/idling.Seconds())
	if p.Name != ours {
		return nil
	}
	for _, what := range []struct{ name, url string }{
		{"scrape, idle conns open", "http://" + p.Scrap + "/metrics"}, {"list of 100, idle conns open", "http://" + p.Admin + "/v1/connections?limit=100"},
	} {
		for range 11 {
			began := time.Now()
			if err := get(ctx, what.url); err != nil {
				return err
			}
			b.rep.Add(what.name, p.Name, "ms", time.Since(began).Seconds()*1e3)
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
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, res.Status)
	}
	_, err = io.Copy(io.Discard, res.Body)
	return err
}
