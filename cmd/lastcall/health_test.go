package main

import (
	"context"
	"net"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// Health checks through the proxied port: a Check is a probe, answered in every phase; a Watch, which never ends by itself,
// is ended as soon as nothing else is left, and holds the drain no longer than that.
func TestGRPCHealthHoldsNoDrain(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer()
	healthpb.RegisterHealthServer(srv, health.NewServer())
	go func() { _ = srv.Serve(ln) }()
	t.Cleanup(srv.Stop)
	p, addr := front(t, ln.Addr().String(), "--lameduck", "1s", "--drain-timeout", "20s", "--closing-window", "2s", "--fate-log-requests", "-1")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	watcher, checker := healthpb.NewHealthClient(dialGRPC(t, addr)), healthpb.NewHealthClient(dialGRPC(t, addr))
	w, err := watcher.Watch(ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Recv(); err != nil {
		t.Fatal(err)
	}
	if _, err := checker.Check(ctx, &healthpb.HealthCheckRequest{}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the watch's end: got %v, want UNAVAILABLE", err)
	}
	for time.Since(began) < 900*time.Millisecond { // probes get their answer throughout
		if _, err := checker.Check(ctx, &healthpb.HealthCheckRequest{}); err != nil {
			t.Errorf("check at %v: %v", time.Since(began), err)
		}
		pause(ctx, 20*time.Millisecond)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("exit: %v", err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the drain took %v", took)
	}
	ended := 0
	for _, f := range p.fates(t) {
		switch {
		case f.Kind == "grpc" && f.Path == "/grpc.health.v1.Health/Watch":
			ended++
			if f.Fate != "ended" || f.By != "lastcall" {
				t.Errorf("watch: %s by %s", f.Fate, f.By)
			}
		case f.Fate != "completed" && f.Fate != "drained":
			t.Errorf("%s %s %s: %s by %s %s", f.ID, f.Kind, f.Path, f.Fate, f.By, f.How)
		}
	}
	if ended == 0 {
		t.Error("no line tells the watch's end")
	}
}
