package main

import (
	"bytes"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// service is what a Kubernetes Service is to its clients: one address whose new connections go to whichever pod is behind
// it by now.
type service struct {
	addr string
	to   atomic.Pointer[string]
}

func newService(t *testing.T, to string) *service {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	s := &service{addr: ln.Addr().String()}
	s.to.Store(&to)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				pod, err := net.Dial("tcp", *s.to.Load())
				if err != nil {
					return
				}
				defer func() { _ = pod.Close() }()
				answered := make(chan struct{})
				go func() {
					defer close(answered)
					_, _ = io.Copy(c, pod)
					_ = c.(*net.TCPConn).CloseWrite()
				}()
				// The pod's FIN must not become a reset for a client that is still sending: it has yet to read its status.
				_, _ = io.Copy(pod, c)
				_ = pod.(*net.TCPConn).CloseWrite()
				_, _ = io.Copy(io.Discard, c)
				<-answered
			}()
		}
	}()
	return s
}

// Each script runs unary calls without pause, one call of three seconds and ten two-way streams, until its input ends. It
// says "open" once all of them run, and in the end what became of them.
const (
	pythonGRPC = `
import sys, threading, time, grpc
ch = grpc.insecure_channel(sys.argv[1])
raw = dict(request_serializer=bytes, response_deserializer=bytes)
unary = ch.unary_unary("/grpc.testing.TestService/UnaryCall", **raw)
duplex = ch.stream_stream("/grpc.testing.TestService/FullDuplexCall", **raw)
stop = threading.Event(); errors = []; ends = []; calls = [0]; slow = []; up = threading.Semaphore(0)
def loop():
    while not stop.is_set():
        try: unary(b"\x10\x02", timeout=20); calls[0] += 1
        except grpc.RpcError as e: errors.append(str(e.code()) + e.details())
        if calls[0] == 1: up.release()
        time.sleep(.005)
def long():
    up.release()
    try: unary(b"\x10\xb8\x17", timeout=20); slow.append("whole")
    except grpc.RpcError as e: errors.append("slow " + str(e.code()) + e.details())
def chat():
    def ask():
        while not stop.is_set(): yield b"\x1a\x04\x12\x02hi"; time.sleep(.02)
    first = True
    try:
        for _ in duplex(ask(), timeout=25):
            if first: up.release(); first = False
        ends.append("ended without a status")
    except grpc.RpcError as e: ends.append(e.code().name + " " + e.details())
ts = [threading.Thread(target=f) for f in [loop, long] + [chat] * 10]
[t.start() for t in ts]; [up.acquire() for t in ts]
print("open", flush=True); sys.stdin.read(); stop.set(); [t.join() for t in ts]
print("calls", calls[0] > 20, "errors", errors, "slow", slow, "streams", len(ends), sorted(set(ends)))
`
	nodeGRPC = `
const grpc = require("@grpc/grpc-js");
const c = new grpc.Client(process.argv[1], grpc.credentials.createInsecure());
const id = b => Buffer.from(b), svc = "/grpc.testing.TestService/";
let stop = false, calls = 0, errors = [], slow = [], ends = [], up = 0, open = 0, busy = 0;
const mark = () => { if (++up == 12) console.log("open") };
const unary = (req, cb) => c.makeUnaryRequest(svc + "UnaryCall", id, id, Buffer.from(req), { deadline: Date.now() + 20000 }, cb);
const loop = () => { busy = 1; unary([0x10, 2], e => { busy = 0; if (e) errors.push(e.code + e.details); else if (++calls == 1) mark(); if (!stop) setTimeout(loop, 5); else end() }) };
loop();
unary([0x10, 0xb8, 0x17], e => { if (e) errors.push("slow " + e.code + e.details); else slow.push("whole"); }); mark();
for (let i = 0; i < 10; i++) {
  open++; let first = true;
  const s = c.makeBidiStreamRequest(svc + "FullDuplexCall", id, id, { deadline: Date.now() + 25000 });
  const t = setInterval(() => s.write(Buffer.from([0x1a, 4, 0x12, 2, 104, 105])), 20);
  s.on("data", () => { if (first) { first = false; mark() } });
  s.on("error", () => {});
  s.on("status", st => { clearInterval(t); ends.push((st.code == 14 ? "UNAVAILABLE" : st.code) + " " + st.details); open--; end() });
}
const end = () => { if (stop && !busy && open == 0) { stop = false;
  console.log("calls", calls > 20 ? "True" : calls, "errors", JSON.stringify(errors), "slow", JSON.stringify(slow).replaceAll('"', "'"), "streams", ends.length, JSON.stringify([...new Set(ends)]).replaceAll('"', "'")); process.exit(0) } };
process.stdin.on("end", () => { stop = true; end() }).resume();
`
)

// A rollout under gRPC clients that nobody here wrote: unary calls don't notice, and streams are told in gRPC's own words.
func TestForeignGRPCDrain(t *testing.T) {
	node, err := filepath.Abs("../../bin/interop/node_modules")
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string]struct{ program, flag, probe, script string }{
		"python grpcio": {"python3", "-c", "import grpc", pythonGRPC},
		"node grpc-js":  {"node", "-e", `require("@grpc/grpc-js")`, nodeGRPC},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program := need(t, p.program, "Debian, make interop")
			probe := exec.Command(program, p.flag, p.probe)
			probe.Env = append(os.Environ(), "NODE_PATH="+node)
			if out, err := probe.CombinedOutput(); err != nil {
				if os.Getenv(requireInterop) != "" {
					t.Fatalf("%v: %s", err, out)
				}
				t.Skipf("%s fails here (make interop installs it): %.200s", p.probe, out)
			}
			app, _ := startGRPC(t, chat{})
			timing := []string{"--lameduck", "2s", "--drain-timeout", "8s", "--closing-window", "3s"}
			old, oldAddr := front(t, app, timing...)
			_, newAddr := front(t, app)
			svc := newService(t, oldAddr)
			cmd := exec.Command(program, p.flag, p.script, svc.addr)
			cmd.Env, cmd.WaitDelay = probe.Env, time.Second
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out := &lockedBuffer{}
			cmd.Stdout, cmd.Stderr = out, out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
			for began := time.Now(); !strings.Contains(out.String(), "open"); pause(t.Context(), 20*time.Millisecond) {
				if time.Since(began) > 20*time.Second {
					t.Fatalf("the client did not get going: %s", out.String())
				}
			}
			if err := old.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			pause(t.Context(), time.Second)
			svc.to.Store(&newAddr)
			if err := old.cmd.Wait(); err != nil {
				t.Errorf("exit: %v", err)
			}
			_ = in.Close()
			if err := cmd.Wait(); err != nil {
				t.Errorf("client: %v", err)
			}
			const want = "calls True errors [] slow ['whole'] streams 10 ['UNAVAILABLE server is shutting down']"
			if got := out.String(); !strings.Contains(got, want) {
				t.Errorf("got %q\nwant %q in it", got, want)
			}
			streams := 0
			for _, f := range old.fates(t) {
				if f.Conn != "" && f.Kind == "grpc" && f.Fate == "ended" && f.By == "lastcall" {
					streams++
				}
			}
			if streams != 10 {
				t.Errorf("two-way streams ended: got %d, want 10", streams)
			}
		})
	}
}

// lockedBuffer is written by a process and read by a test.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
