package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"

	"github.com/lastcall-proxy/lastcall/proxy"
	"github.com/lastcall-proxy/lastcall/proxy/config"
	"github.com/lastcall-proxy/lastcall/proxy/drain"
	"github.com/lastcall-proxy/lastcall/proxy/rehearse"
	"github.com/lastcall-proxy/lastcall/tracker"
	"github.com/lastcall-proxy/lastcall/tracker/admin"
	"github.com/lastcall-proxy/lastcall/tracker/prom"
)

// controls are what the admin API may ask for.
type controls struct {
	drain    *drain.Controller
	rehearse *rehearse.Controller
	proxy    *proxy.Server
}

func (c controls) StartDrain(trigger string) error {
	c.drain.Start(trigger)
	return nil
}

func (c controls) CancelDrain() error {
	if err := c.drain.Cancel(); err != nil {
		return fmt.Errorf("%w: %w", admin.ErrConflict, err)
	}
	return nil
}

func (c controls) Drained() <-chan struct{} { return c.drain.Done() }

func (c controls) CloseConn(id uint64, polite bool) error {
	err := c.proxy.CloseConn(id, polite)
	if errors.Is(err, proxy.ErrUnknownConnection) {
		return fmt.Errorf("%w: %w", admin.ErrNotFound, err)
	}
	return err
}

// Inspect puts the proxy's view into the API's form.
func (c controls) Inspect(id uint64) *admin.HTTP2 {
	v, ok := c.proxy.Inspect(id)
	if !ok {
		return nil
	}
	rtt := func(d time.Duration) *tracker.Seconds {
		if d < 0 {
			return nil
		}
		return new(tracker.Seconds(d.Seconds()))
	}
	out := &admin.HTTP2{Window: v.Window, PingRTT: admin.RoundTrips{Client: rtt(v.RoundTrip[0]), App: rtt(v.RoundTrip[1])}, Streams: make(map[string]admin.HTTP2Stream, len(v.Streams))}
	for n, s := range v.Streams {
		out.Streams[fmt.Sprintf("c%d.%d", id, n)] = admin.HTTP2Stream{Window: s.Window}
	}
	return out
}

// surfaces are the telemetry and admin servers. They stay up until the very end.
type surfaces struct {
	servers []*http.Server
	wg      sync.WaitGroup
	scraped chan struct{} // a token when /metrics was served
}

func openSurfaces(ctx context.Context, s *config.Config, reg *tracker.Registry, c controls, dropped func() uint64, log *zap.Logger) (*surfaces, error) {
	ui := &surfaces{scraped: make(chan struct{}, 1)}
	metrics := prometheus.NewRegistry()
	info := prom.Config{Registry: reg, Pod: s.Pod, Namespace: s.Namespace, Node: s.Node, GoVersion: runtime.Version()}
	info.Version, info.Revision = build()
	if s.TransparentOutbound != "" {
		info.Directions = tracker.AllDirections()
	}
	lost := prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "lastcall_fate_lines_dropped_total", Help: "Fate lines that found the queue to the log full."}, func() float64 { return float64(dropped()) })
	for _, col := range []prometheus.Collector{prom.New(info), lost, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})} {
		if err := metrics.Register(col); err != nil {
			return nil, fmt.Errorf("metrics: %w", err)
		}
	}
	serveMetrics := promhttp.HandlerFor(metrics, promhttp.HandlerOpts{EnableOpenMetrics: true})
	cfg := admin.Config{
		Registry: reg, Controller: c, Rehearser: c, Settings: func() any { return s.Public() }, Token: s.AdminToken, HookToken: s.HookToken,
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			serveMetrics.ServeHTTP(w, r)
			select {
			case ui.scraped <- struct{}{}:
			default:
			}
		}),
		Ready: func() (bool, string) {
			if p := reg.Phase(); p != tracker.Serving {
				return false, "not ready: " + p.String()
			}
			return true, ""
		},
	}
	for addr, h := range map[string]http.Handler{s.Telemetry: admin.NewTelemetry(cfg), s.Admin: admin.NewAdmin(cfg)} {
		var lc net.ListenConfig
		lc.SetMultipathTCP(false)
		ln, err := lc.Listen(ctx, "tcp", addr)
		if err != nil {
			ui.close()
			return nil, fmt.Errorf("listen: %w", err)
		}
		srv := admin.Server(h)
		srv.ErrorLog = zap.NewStdLog(log.Named("http"))
		ui.servers = append(ui.servers, srv)
		ui.wg.Go(func() { _ = srv.Serve(ln) })
	}
	return ui, nil
}

// finalScrape waits for one more scrape, so that the last numbers are seen.
func (u *surfaces) finalScrape(limit time.Duration) {
	if limit <= 0 {
		return
	}
	select {
	case <-u.scraped: // one from before the end
	default:
	}
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-u.scraped:
	case <-t.C:
	}
}

func (u *surfaces) close() {
	for _, s := range u.servers {
		_ = s.Close()
	}
	u.wg.Wait()
}
