package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sys/unix"

	"github.com/lastcall-proxy/lastcall/proxy"
	"github.com/lastcall-proxy/lastcall/proxy/config"
	"github.com/lastcall-proxy/lastcall/proxy/drain"
	"github.com/lastcall-proxy/lastcall/proxy/rehearse"
	"github.com/lastcall-proxy/lastcall/tracker"
	"github.com/lastcall-proxy/lastcall/tracker/fatelog"
)

// flushTime bounds the wait for a slow log reader at the end: the kubelet's patience after the grace period is 2s.
const flushTime = time.Second

// heapGrowth (GOGC) keeps the heap near what is live: the data path allocates nothing per request, so collections are rare
// anyway.
const heapGrowth = 50

// serve runs the sidecar until a drain that a signal began has ended.
func serve(ctx context.Context, cfg *config.Config, stderr io.Writer) error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(heapGrowth)
	}
	log := newLogger(cfg, stderr)
	out, err := fateOutput(cfg.FateLog, stderr)
	if err != nil {
		return failed(err)
	}
	defer func() { _ = out.Close() }()
	fates := fatelog.New(fatelog.Config{Out: zapcore.AddSync(out), Console: cfg.LogFormat == "console"})
	loops := proxy.Loops(cfg.Loops)
	var journal *tracker.Journal
	var left tracker.Left
	if cfg.Journal != "" {
		if journal, left, err = tracker.OpenJournal(cfg.Journal, loops); err != nil {
			return failed(fmt.Errorf("--journal: %w", err))
		}
		if n := left.Sum(tracker.WhatConnection) + left.Sum(tracker.WhatStream); n > 0 {
			log.Warn("an earlier process died with these open; their fate is lost",
				zap.Any("connections", left.ByKind(tracker.WhatConnection)), zap.Any("streams", left.ByKind(tracker.WhatStream)))
		}
	}
	reg := tracker.New(tracker.Config{Shards: loops, OnEnd: fates.OnEnd, LinesDropped: fates.Dropped, Journal: journal, Left: left, LongLivedAfter: cfg.LongLivedAfter, DropPaths: cfg.DropPaths, OrdinaryPerSecond: ordinary(cfg.FateLogRequests)})
	srv, err := proxy.New(proxy.Config{Registry: reg, Loops: loops, Logger: log, Settings: cfg, Unobserved: !cfg.Observe})
	if err != nil {
		return failed(err)
	}
	defer srv.Close()
	// Before anything listens, so that no signal finds nobody waiting for it.
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	c := drain.New(drain.Config{
		Limits:    drain.Limits{Lameduck: cfg.Lameduck, Closing: cfg.DrainTimeout - cfg.ClosingWindow, Deadline: cfg.DrainTimeout},
		LateServe: cfg.Late == "serve", LateRefuse: cfg.Late == "refuse", Spread: cfg.LongLived == "spread",
		Progress: func(v tracker.DrainView) { log.Info("draining", progress(v)...) },
	}, reg, srv)
	if err := srv.Listen(ctx); err != nil {
		var setting *proxy.SettingError
		if errors.As(err, &setting) {
			return fmt.Errorf("--inbound: %w", err)
		}
		return failed(err)
	}
	rehearsals := rehearse.New(reg, srv)
	defer rehearsals.Close()
	ui, err := openSurfaces(ctx, cfg, reg, controls{drain: c, rehearse: rehearsals, proxy: srv}, fates.Dropped, log)
	if err != nil {
		return failed(err)
	}
	defer ui.close()
	for _, n := range cfg.Notes {
		log.Warn("setting changed", zap.String("note", n))
	}
	log.Info("serving", zap.Strings("listen", srv.Addrs()), zap.Int("loops", loops))

	forgetStartup()
	run, cancel := context.WithCancel(ctx)
	var controller sync.WaitGroup
	controller.Go(func() { c.Run(run) })
	wait(ctx, c, signals, log)
	cancel()
	controller.Wait()
	srv.Close()
	ui.finalScrape(cfg.FinalScrape)
	if journal != nil {
		if err := journal.Close(); err != nil {
			log.Warn("journal", zap.Error(err))
		}
	}
	return report(ctx, cfg, reg, fates, log)
}

// wait returns when a drain has ended that a signal began or followed: one that the API began leaves the process up, not
// ready, until the signal.
func wait(ctx context.Context, c *drain.Controller, signals <-chan os.Signal, log *zap.Logger) {
	var ended <-chan struct{}
	for {
		select {
		case sig := <-signals:
			name := sig.String()
			if n, ok := sig.(syscall.Signal); ok {
				name = unix.SignalName(n)
			}
			log.Info("signal", zap.String("signal", name))
			c.Signal(name)
			ended = c.Done()
		case <-ended:
			return
		case <-ctx.Done():
			return
		}
	}
}

// report writes the account of the run to wherever it outlives the pod.
func report(ctx context.Context, cfg *config.Config, reg *tracker.Registry, fates *fatelog.Log, log *zap.Logger) error {
	flush, stop := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
	defer stop()
	if err := fates.Close(flush); err != nil {
		log.Warn("fate log", zap.Error(err))
	}
	rep := reg.Report()
	if cfg.ReportFile != "" {
		if err := fatelog.WriteReport(cfg.ReportFile, rep); err != nil {
			log.Warn("report file", zap.Error(err))
		}
	}
	if cfg.TerminationMessage != "" {
		if err := fatelog.WriteTermination(cfg.TerminationMessage, rep); err != nil {
			log.Warn("termination message", zap.Error(err))
		}
	}
	log.Info("report", zap.Reflect("report", rep))
	if n := reg.Counts(); cfg.StrictExit {
		for _, f := range []tracker.Fate{tracker.Cut, tracker.Aborted, tracker.Lost} {
			if n.FateSum(tracker.WhatConnection, f)+n.FateSum(tracker.WhatStream, f) > 0 {
				return failure{errStrict, exitStrict}
			}
		}
	}
	return nil
}

// ordinary turns the flag (-1 all, 0 none) into the tracker's terms.
func ordinary(perSecond int) int {
	switch perSecond {
	case 0:
		return tracker.OrdinaryNone
	case -1:
		return tracker.OrdinaryAll
	}
	return perSecond
}

func newLogger(cfg *config.Config, stderr io.Writer) *zap.Logger {
	enc := zapcore.EncoderConfig{TimeKey: "ts", EncodeTime: zapcore.RFC3339NanoTimeEncoder, LevelKey: "level", EncodeLevel: zapcore.LowercaseLevelEncoder, NameKey: "logger", MessageKey: "msg", EncodeDuration: zapcore.StringDurationEncoder}
	encoder := zapcore.NewJSONEncoder(enc)
	if cfg.LogFormat == "console" {
		encoder = zapcore.NewConsoleEncoder(enc)
	}
	level, err := zapcore.ParseLevel(cfg.LogLevel)
	if err != nil {
		level = zap.InfoLevel // validated before
	}
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(stderr)), level))
}

// progress is what a drain says of itself every few seconds: how many of what, how long still, and who by name.
func progress(v tracker.DrainView) []zap.Field {
	fields := []zap.Field{zap.Stringer("phase", v.Phase), zap.Int("connections", v.Remaining.Connections), zap.Int("streams", v.Remaining.Streams), zap.Any("by_kind", v.Remaining.ByKind)}
	if v.Deadline != 0 {
		fields = append(fields, zap.Float64("left_s", time.Until(v.Deadline.Time()).Seconds()))
	}
	const named = 5
	var oldest []string
	for i := range v.Survivors[:min(named, len(v.Survivors))] {
		r := &v.Survivors[i]
		oldest = append(oldest, fmt.Sprintf("%s %s %s from %s, waiting on %s", r.ID, r.Kind, r.Path, r.Client, r.WaitingOn))
	}
	return append(fields, zap.Strings("oldest", oldest))
}

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
