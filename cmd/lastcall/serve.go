package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/lastcall-proxy/lastcall/proxy"
	"github.com/lastcall-proxy/lastcall/proxy/config"
	"github.com/lastcall-proxy/lastcall/proxy/drain"
	"github.com/lastcall-proxy/lastcall/tracker"
	"github.com/lastcall-proxy/lastcall/tracker/fatelog"
)

// flushTime bounds the wait for a slow log reader at the end: the kubelet's patience after the grace period is 2s.
const flushTime = time.Second

// fateOutput opens where fate lines go: "-" is beside the log.
func fateOutput(path string, stderr io.Writer) (io.WriteCloser, error) {
	if path == "-" {
		return nopCloser{stderr}, nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("--fate-log: %w", err)
	}
	return f, nil
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// serve runs the sidecar until a drain that a signal began has ended.
func serve(ctx context.Context, s settings, stderr io.Writer) error {
	enc := zapcore.NewJSONEncoder(zapcore.EncoderConfig{TimeKey: "ts", EncodeTime: zapcore.RFC3339NanoTimeEncoder, LevelKey: "level", EncodeLevel: zapcore.LowercaseLevelEncoder, NameKey: "logger", MessageKey: "msg", EncodeDuration: zapcore.StringDurationEncoder})
	log := zap.New(zapcore.NewCore(enc, zapcore.Lock(zapcore.AddSync(stderr)), zap.InfoLevel))
	out, err := fateOutput(s.fateLog, stderr)
	if err != nil {
		return failure{err}
	}
	defer func() { _ = out.Close() }()
	fates := fatelog.New(fatelog.Config{Out: zapcore.AddSync(out)})
	loops := proxy.Loops(0)
	reg := tracker.New(tracker.Config{Shards: loops, OnEnd: fates.OnEnd})
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
	c := drain.New(drain.Config{Limits: drain.Limits{Lameduck: s.lameduck, Closing: s.timeout - s.closing, Deadline: s.timeout}, LateServe: s.late == "serve", LateRefuse: s.late == "refuse"}, reg, srv)
	ui, err := openSurfaces(ctx, s, reg, controls{drain: c, proxy: srv}, log)
	if err != nil {
		srv.Close()
		return failure{err}
	}
	log.Info("serving", zap.Strings("listen", srv.Addrs()))
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
	ui.finalScrape(s.finalScrape)
	flush, stop := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
	defer stop()
	if err := fates.Close(flush); err != nil {
		log.Warn("fate log", zap.Error(err))
	}
	rep := reg.Report()
	rep.FateLinesDropped = fates.Dropped()
	if s.reportFile != "" {
		if err := fatelog.WriteReport(s.reportFile, rep); err != nil {
			log.Warn("report file", zap.Error(err))
		}
	}
	if s.termination != "" {
		if err := fatelog.WriteTermination(s.termination, rep); err != nil {
			log.Warn("termination message", zap.Error(err))
		}
	}
	log.Info("report", zap.Reflect("report", rep))
	ui.close()
	return nil
}
