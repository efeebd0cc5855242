package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
)

// chat is the interop service with a unary call that takes as many milliseconds as it is asked for, and an echo.
type chat struct {
	testgrpc.UnimplementedTestServiceServer
}

func (chat) UnaryCall(ctx context.Context, r *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
	if !pause(ctx, time.Duration(r.GetResponseSize())*time.Millisecond) {
		return nil, ctx.Err()
	}
	return &testgrpc.SimpleResponse{Username: "whole"}, nil
}

func (chat) FullDuplexCall(s testgrpc.TestService_FullDuplexCallServer) error {
	for {
		in, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.Send(&testgrpc.StreamingOutputCallResponse{Payload: in.GetPayload()}); err != nil {
			return err
		}
	}
}

func startGRPC(t *testing.T, svc testgrpc.TestServiceServer) (addr string, srv *grpc.Server) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv = grpc.NewServer()
	testgrpc.RegisterTestServiceServer(srv, svc)
	go func() { _ = srv.Serve(ln) }()
	t.Cleanup(srv.Stop)
	return ln.Addr().String(), srv
}

func dialGRPC(t *testing.T, addr string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	c, err := grpc.NewClient("passthrough:///"+addr, append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// The suite that gRPC's own implementations test each other with passes through as it passes without.
func TestGRPCInterop(t *testing.T) {
	app, _ := startGRPC(t, interop.NewTestServer())
	t.Run("plain", func(t *testing.T) {
		_, addr := front(t, app)
		interopCases(t, addr, insecure.NewCredentials())
	})
	t.Run("TLS", func(t *testing.T) {
		cert, key, pool := selfSigned(t)
		_, addr := front(t, app+",tls-cert="+cert+",tls-key="+key)
		interopCases(t, addr, credentials.NewTLS(&tls.Config{RootCAs: pool, ServerName: "web", MinVersion: tls.VersionTLS12}))
	})
}

func interopCases(t *testing.T, addr string, creds credentials.TransportCredentials) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cases := map[string]func(context.Context, testgrpc.TestServiceClient, ...grpc.CallOption){
		"empty_unary": interop.DoEmptyUnaryCall, "large_unary": interop.DoLargeUnaryCall, "client_streaming": interop.DoClientStreaming,
		"server_streaming": interop.DoServerStreaming, "ping_pong": interop.DoPingPong, "empty_stream": interop.DoEmptyStream,
		"timeout_on_sleeping_server": interop.DoTimeoutOnSleepingServer, "cancel_after_begin": interop.DoCancelAfterBegin,
		"cancel_after_first_response": interop.DoCancelAfterFirstResponse, "status_code_and_message": interop.DoStatusCodeAndMessage,
		"special_status_message": interop.DoSpecialStatusMessage, "custom_metadata": interop.DoCustomMetadata, "unimplemented_method": nil, "unimplemented_service": nil,
	}
	for name, f := range cases {
		t.Run(name, func(t *testing.T) { // a case that fails ends the process: its log line says why
			c := dialGRPC(t, addr, grpc.WithTransportCredentials(creds))
			switch name {
			case "unimplemented_method":
				interop.DoUnimplementedMethod(ctx, c)
			case "unimplemented_service":
				interop.DoUnimplementedService(ctx, testgrpc.NewUnimplementedServiceClient(c))
			default:
				f(ctx, testgrpc.NewTestServiceClient(c))
			}
		})
	}
}

// A rollout under load: unary calls don't notice, long ones finish, streams get UNAVAILABLE in gRPC's own words.
func TestGRPCDrain(t *testing.T) {
	app, _ := startGRPC(t, chat{})
	h2 := &http.Protocols{}
	h2.SetUnencryptedHTTP2(true)
	web, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ws := &http.Server{Protocols: h2, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }), ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = ws.Serve(web) }()
	t.Cleanup(func() { _ = ws.Close() })
	addrs, err := freeAddrs(t.Context(), 4)
	if err != nil {
		t.Fatal(err)
	}
	timing := []string{"--lameduck", "2s", "--drain-timeout", "8s", "--closing-window", "2s"}
	old := start(t, append([]string{"--inbound", addrs[0] + "=" + app, "--inbound", addrs[1] + "=" + web.Addr().String(), "--fate-log-requests", "-1"}, timing...)...)
	_ = start(t, append([]string{"--inbound", addrs[2] + "=" + app, "--inbound", addrs[3] + "=" + web.Addr().String()}, timing...)...)
	// The pod behind the Service: as endpoints do, new connections find the new pod a while after the old one began to drain.
	var moved atomic.Bool
	to := func(oldAddr, newAddr string) func(context.Context, string) (net.Conn, error) {
		return func(ctx context.Context, _ string) (net.Conn, error) {
			var d net.Dialer
			if moved.Load() {
				return d.DialContext(ctx, "tcp", newAddr)
			}
			return d.DialContext(ctx, "tcp", oldAddr)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	over := make(chan struct{}) // closed when the old pod is gone and all may stop
	var wg, ready sync.WaitGroup
	var unary, whole, pages, streams atomic.Int64
	fail := func(format string, args ...any) { t.Helper(); t.Errorf(format, args...) }
	client := func() testgrpc.TestServiceClient {
		return testgrpc.NewTestServiceClient(dialGRPC(t, "svc", grpc.WithContextDialer(to(addrs[0], addrs[2]))))
	}
	running := func() bool {
		select {
		case <-over:
			return false
		default:
			return true
		}
	}
	for range 20 { // unary calls, one after the other
		c, up := client(), sync.OnceFunc(ready.Done)
		ready.Add(1)
		wg.Go(func() {
			for running() {
				if _, err := c.UnaryCall(ctx, &testgrpc.SimpleRequest{ResponseSize: 5}); err != nil {
					fail("unary call: %v", err)
					break
				}
				unary.Add(1)
				up()
			}
			up()
		})
	}
	slow := make(chan struct{})
	for range 5 { // of three seconds, begun just before the signal
		c := client()
		wg.Go(func() {
			<-slow
			r, err := c.UnaryCall(ctx, &testgrpc.SimpleRequest{ResponseSize: 3000})
			if err != nil || r.GetUsername() != "whole" {
				fail("call of 3s: %v, %v", r, err)
				return
			}
			whole.Add(1)
		})
	}
	for range 20 { // two-way streams
		c, up := client(), sync.OnceFunc(ready.Done)
		ready.Add(1)
		wg.Go(func() {
			s, err := c.FullDuplexCall(ctx)
			for err == nil {
				if err = s.Send(&testgrpc.StreamingOutputCallRequest{Payload: &testgrpc.Payload{Body: []byte("hi")}}); err == nil || errors.Is(err, io.EOF) {
					_, err = s.Recv()
				}
				up()
				pause(ctx, 20*time.Millisecond)
			}
			up()
			if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "server is shutting down") {
				fail("two-way stream: got %v, want UNAVAILABLE with our message", err)
				return
			}
			streams.Add(1)
		})
	}
	for range 50 { // HTTP/2 connections with requests
		dial := to(addrs[1], addrs[3])
		tr := &http.Transport{Protocols: h2, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, "") }, DialTLSContext: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no TLS here") }, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}}
		c, up := &http.Client{Transport: tr}, sync.OnceFunc(ready.Done)
		ready.Add(1)
		wg.Go(func() {
			defer tr.CloseIdleConnections()
			for running() {
				res, err := c.Get("http://svc/page")
				if err == nil {
					_, err = io.Copy(io.Discard, res.Body)
					_ = res.Body.Close()
				}
				if err != nil {
					fail("request: %v", err)
					break
				}
				pages.Add(1)
				up()
				pause(ctx, 10*time.Millisecond)
			}
			up()
		})
	}
	ready.Wait()
	close(slow)
	began := time.Now()
	for d := (&demoRun{}); ; pause(ctx, 10*time.Millisecond) { // until the slow calls are in flight
		b, err := d.get(ctx, old.admin, "/v1/streams?state=open&limit=1000&older=100ms&kind=grpc")
		if err == nil && strings.Count(string(b), "/grpc.testing.TestService/UnaryCall") >= 5 {
			break
		}
		if ctx.Err() != nil || time.Since(began) > 5*time.Second {
			t.Fatalf("the slow calls were not seen: %v %.2000s", err, b)
		}
	}
	if err := old.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	pause(ctx, time.Second)
	moved.Store(true)
	if err := old.cmd.Wait(); err != nil {
		t.Errorf("exit: %v", err)
	}
	close(over)
	wg.Wait()
	t.Logf("%d unary calls, %d of 3s, %d two-way streams, %d requests", unary.Load(), whole.Load(), streams.Load(), pages.Load())
	fates := map[string]int{}
	for _, f := range old.fates(t) {
		what := "connection"
		if f.Conn != "" {
			what = "stream"
		}
		fates[fmt.Sprintf("%s %s %s by %s %s", what, f.Kind, f.Fate, f.By, f.How)]++
	}
	for k, n := range fates {
		t.Logf("%6d %s", n, k)
	}
	if fates["stream grpc ended by lastcall protocol"] != 20 {
		t.Errorf("two-way streams ended: got %d, want 20", fates["stream grpc ended by lastcall protocol"])
	}
	for k := range fates {
		if strings.Contains(k, "cut") || strings.Contains(k, "failed") || strings.Contains(k, "aborted") {
			t.Errorf("there is a fate %q", k)
		}
	}
}

// An app that stops gracefully by itself keeps its meaning through us: what is in flight goes on, nothing new is begun on
// the connection, and the client looks for another one.
func TestGracefulStopPassesThrough(t *testing.T) {
	for _, together := range []bool{false, true} {
		t.Run(fmt.Sprintf("sidecar told too=%t", together), func(t *testing.T) {
			app, srv := startGRPC(t, chat{})
			other, _ := startGRPC(t, chat{})
			p, addr := front(t, app, "--lameduck", "1s", "--drain-timeout", "6s", "--closing-window", "1s")
			svc := newService(t, addr)
			c := testgrpc.NewTestServiceClient(dialGRPC(t, svc.addr))
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
			defer cancel()
			s, err := c.FullDuplexCall(ctx)
			if err != nil {
				t.Fatal(err)
			}
			talk := func() error {
				if err := s.Send(&testgrpc.StreamingOutputCallRequest{Payload: &testgrpc.Payload{Body: []byte("hi")}}); err != nil {
					return err
				}
				_, err := s.Recv()
				return err
			}
			if err := talk(); err != nil {
				t.Fatal(err)
			}
			svc.to.Store(&other)
			if together {
				if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
					t.Fatal(err)
				}
			}
			stopped := make(chan struct{})
			go func() { srv.GracefulStop(); close(stopped) }()
			for range 20 { // unary calls move to the other pod, the stream goes on where it is
				if _, err := c.UnaryCall(ctx, &testgrpc.SimpleRequest{ResponseSize: 5}); err != nil {
					t.Errorf("unary call: %v", err)
				}
				if err := talk(); err != nil {
					t.Fatalf("the stream that was open: %v", err)
				}
			}
			if err := s.CloseSend(); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Recv(); !errors.Is(err, io.EOF) {
				t.Errorf("the stream's end: got %v, want EOF", err)
			}
			select {
			case <-stopped:
			case <-ctx.Done():
				t.Error("the app did not come to its end")
			}
			for !together {
				if b, err := (&demoRun{}).get(ctx, p.admin, "/v1/connections?state=open"); err != nil || !strings.Contains(string(b), `"c1"`) {
					break
				}
				if !pause(ctx, 10*time.Millisecond) {
					t.Fatal("the connection stayed open")
				}
			}
			if !together {
				_ = p.cmd.Process.Signal(syscall.SIGTERM)
			}
			_ = p.cmd.Wait()
			for _, f := range p.fates(t) {
				if f.Fate != "completed" && f.Fate != "drained" {
					t.Errorf("%s %s: %s by %s %s", f.ID, f.Kind, f.Fate, f.By, f.How)
				}
			}
		})
	}
}
