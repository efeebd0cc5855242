package fatelog_test

import (
	"errors"
	"os"
	"testing"

	"go.uber.org/zap/zapcore"

	"github.com/lastcall-proxy/lastcall/tracker"
	"github.com/lastcall-proxy/lastcall/tracker/fatelog"
	"github.com/lastcall-proxy/lastcall/tracker/trackertest"
)

// full is a log that can't be written.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestFailedWritesAreCounted(t *testing.T) {
	log := fatelog.New(fatelog.Config{Out: zapcore.AddSync(full{})})
	reg := trackertest.New(t, tracker.Config{Shards: 1, OnEnd: log.OnEnd})
	for range 10 {
		c := reg.Shard(0).OpenConn(tracker.ConnFacts{Client: "c", App: "a", OpenedAt: reg.Now()})
		c.End(tracker.End{Fate: tracker.Completed, By: tracker.ByClient, How: tracker.HowFIN})
	}
	if err := log.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := log.Dropped(); n != 10 {
		t.Errorf("10 lines went nowhere, Dropped says %d, Close said nil", n)
	}
}

func TestOnEndAfterClose(t *testing.T) {
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("panic on the data path: %v", p)
		}
	}()
	log := fatelog.New(fatelog.Config{Out: zapcore.AddSync(full{})})
	_ = log.Close(t.Context())
	log.OnEnd(tracker.WhatStream, &tracker.Record{})
}

func TestFullDevice(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip(err)
	}
	reg := trackertest.New(t, tracker.Config{Shards: 1})
	if err := fatelog.WriteTermination("/dev/full", reg.Report()); err == nil {
		t.Error("no error from a full device")
	}
}
