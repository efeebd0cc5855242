package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/lastcall-proxy/lastcall/proxy"
	"github.com/lastcall-proxy/lastcall/proxy/config"
	"github.com/lastcall-proxy/lastcall/proxy/drain"
	"github.com/lastcall-proxy/lastcall/tracker"
)

// fateQueue bounds the fate lines that wait for a slow log reader; beyond it they are counted, never waited for.
const fateQueue = 64 << 10

// serve runs the sidecar until a drain that a signal began has ended.
func serve(ctx context.Context, s settings, stderr io.Writer) error {
	enc := zapcore.NewJSONEncoder(zapcore.EncoderConfig{TimeKey: "ts", EncodeTime: zapcore.RFC3339NanoTimeEncoder, LevelKey: "level", EncodeLevel: zapcore.LowercaseLevelEncoder, NameKey: "logger", MessageKey: "msg", EncodeDuration: zapcore.StringDurationEncoder})
	log := zap.New(zapcore.NewCore(enc, zapcore.Lock(zapcore.AddSync(stderr)), zap.InfoLevel))
	type line struct {
		what tracker.What
		rec  *tracker.Record
	}
	lines := make(chan line, fateQueue)
	var dropped uint64
	var mu sync.Mutex
	loops := proxy.Loops(0)
	reg := tracker.New(tracker.Config{Shards: loops, OnEnd: func(w tracker.What, rec *tracker.Record) {
		select {
		case lines <- line{w, rec}:
		default:
			mu.Lock()
			dropped++
			mu.Unlock()
		}
	}})
	var writer sync.WaitGroup
	writer.Go(func() {
		fates := log.Named("fate")
		for l := range lines {
			fates.Info(l.what.String()+" ended", zap.Reflect("record", l.rec))
		}
	})
	srv, err := proxy.New(proxy.Config{Registry: reg, Loops: loops, Logger: log, Settings: &config.Config{
		Inbound: s.listeners, MaxConnections: s.maxConns, Probes: config.DefaultProbes(), Scrapers: config.DefaultScrapers(),
	}})
	if err != nil {
		return failure{err}
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	if err := srv.Listen(ctx); err != nil {
		srv.Close()
		return failure{err}
	}
	log.Info("serving", zap.Strings("listen", srv.Addrs()))
	c := drain.New(drain.Config{Limits: drain.Limits{Lameduck: s.lameduck, Closing: s.timeout - s.closing, Deadline: s.timeout}, LateServe: s.late == "serve", LateRefuse: s.late == "refuse"}, reg, srv)
	ctx, cancel := context.WithCancel(ctx)
	var controller sync.WaitGroup
	controller.Go(func() { c.Run(ctx) })
	for done := c.Done(); done != nil; {
		select {
		case sig := <-signals:
			log.Info("signal", zap.Stringer("signal", sig))
			c.Signal(sig.String())
		case <-ctx.Done():
			done = nil
		case <-done:
			done = nil
		}
	}
	cancel()
	controller.Wait()
	srv.Close()
	close(lines)
	writer.Wait()
	rep := reg.Report()
	mu.Lock()
	rep.FateLinesDropped = dropped
	mu.Unlock()
	log.Info("report", zap.Reflect("report", rep))
	return nil
}
