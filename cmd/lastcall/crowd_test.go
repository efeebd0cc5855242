package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// The test binary is also the program: a sidecar under test is a real process.
const asProgram = "LASTCALL_TEST_AS_PROGRAM"

// descriptors is how many descriptors the program under test may have.
const descriptors = "LASTCALL_TEST_DESCRIPTORS"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		if n, err := strconv.ParseUint(os.Getenv(descriptors), 10, 32); err == nil {
			if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: n, Max: n}); err != nil {
				panic(err)
			}
		}
		os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// process is a running sidecar.
type process struct {
	cmd              *exec.Cmd
	telemetry, admin string
	dir              string
	log              *os.File
}

// start runs the program with its own ports and waits until it is ready.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	addrs, err := freeAddrs(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{telemetry: addrs[0], admin: addrs[1], dir: t.TempDir()}
	p.log, err = os.Create(filepath.Join(p.dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	p.cmd = exec.Command(os.Args[0], append([]string{"run", "--telemetry", p.telemetry, "--admin", p.admin, "--report-file", filepath.Join(p.dir, "report"), "--termination-message", filepath.Join(p.dir, "termination")}, args...)...)
	p.cmd.Env = append(os.Environ(), asProgram+"=1")
	p.cmd.Stderr = p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill(); _ = p.log.Close() })
	d := &demoRun{}
	for began := time.Now(); ; {
		if _, err := d.get(t.Context(), p.telemetry, "/readyz"); err == nil {
			return p
		}
		if time.Since(began) > 10*time.Second {
			b, _ := os.ReadFile(p.log.Name())
			t.Fatalf("the sidecar did not become ready; it said: %s", b)
		}
		pause(t.Context(), 20*time.Millisecond)
	}
}

// fates reads the fate lines.
func (p *process) fates(t *testing.T) []demoFate {
	t.Helper()
	f, err := os.Open(p.log.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var all []demoFate
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 4<<20)
	for sc.Scan() {
		var v demoFate
		if json.Unmarshal(sc.Bytes(), &v) == nil && v.Logger == "fate" {
			all = append(all, v)
		}
	}
	return all
}

func TestCrowdDrains(t *testing.T) {
	if testing.Short() {
		t.Skip("takes ten seconds and a thousand connections")
	}
	app, err := startDemoApp(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer app.stop()
	addrs, err := freeAddrs(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, "--inbound", addrs[0]+"="+app.http.Addr().String(), "--inbound", addrs[1]+"="+app.tcp.Addr().String(), "--lameduck", "1s", "--drain-timeout", "8s", "--closing-window", "4s")
	scale := 1 // LASTCALL_CROWD=5: five thousand connections
	if v, err := strconv.Atoi(os.Getenv("LASTCALL_CROWD")); err == nil && v > 0 {
		scale = v
	}
	idle, busy, sockets, streams, raws := 300*scale, 100*scale, 300*scale, 150*scale, 150*scale
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	clients := &demoClients{web: addrs[0], tcp: addrs[1]}
	var all sync.WaitGroup
	var ready sync.WaitGroup
	var closes []time.Duration
	var mu sync.Mutex
	var term atomic.Int64
	var wrong atomic.Int64
	group := func(n int, name, want string, f func(ctx context.Context, up func()) (string, error)) {
		for range n {
			ready.Add(1)
			up := sync.OnceFunc(ready.Done)
			all.Go(func() {
				got, err := f(ctx, up)
				up()
				if err != nil || !strings.Contains(got, want) {
					if wrong.Add(1) < 10 {
						t.Errorf("%s: got %q, %v; want %q", name, got, err, want)
					}
				}
				if name == "websocket" {
					mu.Lock()
					closes = append(closes, time.Since(time.Unix(0, term.Load())))
					mu.Unlock()
				}
			})
		}
	}
	group(idle, "idle", "closed by FIN", clients.idle)
	group(sockets, "websocket", "Close 1012", clients.websocket)
	group(streams, "events", "clean end", clients.events)
	group(raws, "raw", "half-closed", clients.raw)
	group(busy, "busy", "Connection: close", func(ctx context.Context, up func()) (string, error) { return untilClosed(ctx, clients.web, up) })
	ready.Wait()
	term.Store(time.Now().UnixNano())
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	err = p.cmd.Wait()
	took := time.Since(time.Unix(0, term.Load()))
	all.Wait()
	if err != nil || took > 9*time.Second {
		t.Errorf("exit: got %v after %v, want 0 within the deadline and a second", err, took)
	}
	slices.Sort(closes)
	if n := len(closes); n == sockets {
		var tenths [10]int
		first, last := closes[0], closes[n-1]
		for _, c := range closes {
			tenths[min(9, int(10*(c-first)/(last-first+1)))]++
		}
		t.Logf("WebSocket Closes from %v to %v after SIGTERM, per tenth: %v", first.Round(time.Millisecond), last.Round(time.Millisecond), tenths)
		if last-first < time.Second || slices.Max(tenths[:]) > sockets/3 {
			t.Errorf("Closes are bunched: %v between %v and %v", tenths, first, last)
		}
	}
	conns := make(map[string]int)
	byFate := make(map[string]int)
	for _, f := range p.fates(t) {
		if f.Conn == "" {
			conns[f.ID]++
			byFate[f.Kind+" "+f.Fate]++
		}
	}
	t.Logf("connections by fate: %v", byFate)
	total := idle + busy + sockets + streams + raws
	if len(conns) != total || byFate["websocket ended"] != sockets || byFate["tcp ended"] != raws || byFate["http1 ended"] != streams || byFate["http1 drained"] != idle+busy {
		t.Errorf("connections with a fate: got %d (%v), want %d", len(conns), byFate, total)
	}
	for id, n := range conns {
		if n != 1 {
			t.Errorf("%s has %d fates", id, n)
		}
	}
	b, err := os.ReadFile(filepath.Join(p.dir, "termination"))
	if err != nil || len(b) > 4096 || !json.Valid(b) {
		t.Errorf("termination message: %d bytes, %v", len(b), err)
	}
}

// untilClosed asks again and again on one connection until an answer says Connection: close.
func untilClosed(ctx context.Context, addr string, up func()) (string, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	r := bufio.NewReader(c)
	for {
		if _, err := io.WriteString(c, "GET /fast HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
			return "", err
		}
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			return "", fmt.Errorf("closed without having been told: %w", err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		up()
		if res.Close {
			return "Connection: close", nil
		}
		if !pause(ctx, 20*time.Millisecond) {
			return "", ctx.Err()
		}
	}
}

func TestExitStatuses(t *testing.T) {
	app, err := startDemoApp(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer app.stop()
	taken := app.http.Addr().String()
	t.Run("port in use", func(t *testing.T) {
		cmd := exec.Command(os.Args[0], "run", "--inbound", taken+"=127.0.0.1:1", "--telemetry", "127.0.0.1:0", "--admin", "127.0.0.1:0")
		cmd.Env = append(os.Environ(), asProgram+"=1")
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != exitFailure || strings.Count(string(out), "\n") != 1 || !strings.Contains(string(out), "address already in use") {
			t.Errorf("got %v and %q, want status 1 and one line", err, out)
		}
	})
	for _, strict := range []bool{false, true} {
		t.Run(fmt.Sprintf("cut at the deadline, strict=%t", strict), func(t *testing.T) {
			addrs, err := freeAddrs(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			p := start(t, "--inbound", addrs[0]+"="+taken, "--drain-timeout", "400ms", fmt.Sprintf("--strict-exit=%t", strict))
			c, err := net.Dial("tcp", addrs[0])
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			if _, err := io.WriteString(c, "GET /never HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			d := &demoRun{}
			for {
				if b, err := d.get(t.Context(), p.admin, "/v1/streams"); err == nil && strings.Contains(string(b), "/never") {
					break
				}
				if !pause(t.Context(), 10*time.Millisecond) {
					t.Fatal("the request was not seen")
				}
			}
			if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			_ = p.cmd.Wait()
			want := 0
			if strict {
				want = exitStrict
			}
			if got := p.cmd.ProcessState.ExitCode(); got != want {
				t.Errorf("status: got %d, want %d", got, want)
			}
		})
	}
}
