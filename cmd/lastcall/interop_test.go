package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// requireInterop makes a missing part a failure: CI installs them all.
const requireInterop = "LASTCALL_REQUIRE_INTEROP"

// need finds a program that this test drives.
func need(t *testing.T, name, from string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	if os.Getenv(requireInterop) != "" {
		t.Fatalf("%s is not installed (%s)", name, from)
	}
	t.Skipf("%s is not installed (%s)", name, from)
	return ""
}

// background starts a program that ends with the test.
func background(t *testing.T, out io.Writer, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = out, out
	// With its workers: they would hold its output open, and Wait with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); _ = cmd.Wait() })
	return cmd
}

// await waits until a TCP port answers.
func await(t *testing.T, addr string) {
	t.Helper()
	for began := time.Now(); time.Since(began) < 10*time.Second; {
		if c, err := net.Dial("tcp", addr); err == nil {
			_ = c.Close()
			return
		}
		pause(t.Context(), 20*time.Millisecond)
	}
	t.Fatalf("%s does not listen", addr)
}

// nginx starts a server with a page and a file of 1 MiB.
func nginx(t *testing.T) (addr string) {
	t.Helper()
	need(t, "nginx", "Debian: nginx-light")
	addrs, err := freeAddrs(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil { // nginx's workers are somebody else
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "big"), bytes.Repeat([]byte("0123456789abcdef"), 1<<16), 0o644); err != nil {
		t.Fatal(err)
	}
	conf := fmt.Sprintf(`daemon off; user root; worker_processes 1; pid %[1]s/pid; error_log stderr;
events { worker_connections 4096; }
http { access_log off; client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/p; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
 keepalive_requests 1000000; server { listen %[2]s; root %[1]s; location = / { return 200 "hello\n"; } } }`, dir, addrs[0])
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, []byte(conf), 0o644); err != nil {
		t.Fatal(err)
	}
	background(t, io.Discard, "nginx", "-c", file)
	await(t, addrs[0])
	return addrs[0]
}

// front starts a sidecar in front of app.
func front(t *testing.T, app string, args ...string) (*process, string) {
	t.Helper()
	addrs, err := freeAddrs(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	return start(t, append([]string{"--inbound", addrs[0] + "=" + app}, args...)...), addrs[0]
}

func TestNginxUnderLoad(t *testing.T) {
	need(t, "curl", "Debian: curl")
	need(t, "wrk", "Debian: wrk")
	p, addr := front(t, nginx(t))
	out, err := exec.Command("curl", "-sS", "--fail", "http://"+addr+"/", "http://"+addr+"/big").Output()
	if err != nil || len(out) != len("hello\n")+1<<20 {
		t.Errorf("curl: got %d bytes, %v", len(out), err)
	}
	stop := make(chan struct{})
	seen := make(chan int)
	go func() { seen <- p.watchBooks(t, stop) }()
	out, err = exec.Command("wrk", "-c", "100", "-t", "1", "-d", "5s", "http://"+addr+"/").CombinedOutput()
	close(stop)
	scrapes := <-seen
	if err != nil || bytes.Contains(out, []byte("Socket errors")) || bytes.Contains(out, []byte("Non-2xx")) {
		t.Errorf("wrk: %v\n%s", err, out)
	}
	if m := p.scrape(t); m["lastcall_streams_opened_total"] < 1000 || scrapes < 10 {
		t.Errorf("got %.0f streams and %d scrapes: no load", m["lastcall_streams_opened_total"], scrapes)
	}
}

// The last numbers of a pod reach a real Prometheus, whose next scrape falls behind the last connection's end.
func TestFinalScrape(t *testing.T) {
	prometheus := need(t, "prometheus", "Debian: prometheus")
	p, addr := front(t, nginx(t), "--final-scrape", "20s", "--lameduck", "100ms", "--drain-timeout", "2s")
	addrs, err := freeAddrs(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	conf := fmt.Sprintf("global: {scrape_interval: 2s, scrape_timeout: 1s}\nscrape_configs:\n- job_name: pod\n  static_configs: [{targets: [%q]}]\n", p.telemetry)
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(conf), 0o644); err != nil {
		t.Fatal(err)
	}
	background(t, io.Discard, prometheus, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+addrs[0])
	await(t, addrs[0])
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := io.WriteString(c, "GET /half HTTP/1.1\r\nHost: h\r\n"); err != nil { // never whole: cut at the deadline
		t.Fatal(err)
	}
	ask := func(query string) string {
		var v struct {
			Data struct {
				Result []struct{ Value [2]any }
			}
		}
		d := &demoRun{}
		b, err := d.get(t.Context(), addrs[0], "/api/v1/query?query="+query)
		if err != nil || json.Unmarshal(b, &v) != nil || len(v.Data.Result) != 1 {
			return ""
		}
		return fmt.Sprint(v.Data.Result[0].Value[1])
	}
	wait := func(query, want string) {
		t.Helper()
		for began := time.Now(); time.Since(began) < 20*time.Second; pause(t.Context(), 50*time.Millisecond) {
			if ask(query) == want {
				return
			}
		}
		t.Fatalf("%s: got %q, want %q", query, ask(query), want)
	}
	wait("sum(lastcall_connections_open)", "1")
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("exit: %v", err)
	}
	// The process is gone: what Prometheus has is what it took at the end.
	wait("sum(last_over_time(lastcall_connection_fates_total%7Bfate=%22cut%22%7D[5m]))", "1")
}

// Clients that nobody here wrote read our goodbyes as their protocols mean them.
func TestForeignClients(t *testing.T) {
	tests := []struct{ name, program, from, probe, script, want string }{
		{"python websockets", "python3", "Python", "import websockets", `
import sys, websockets.sync.client as w
from websockets.exceptions import ConnectionClosed
with w.connect("ws://%s/chat") as c:
    c.send("hi"); assert c.recv() == "hi"
    print("open", flush=True)
    try: c.recv()
    except ConnectionClosed as e: print("closed", e.rcvd.code, e.rcvd_then_sent)
`, "closed 1012 True"},
		{"python http.client", "python3", "Python", "import http.client", `
import http.client
c = http.client.HTTPConnection("%s"); c.request("GET", "/fast"); assert c.getresponse().read() == b"fast\n"
c.request("GET", "/slow"); print("open", flush=True)
r = c.getresponse(); print("closed", r.status, r.getheader("Connection"), r.read())
`, `closed 200 close b'slow but whole\n'`},
		{"node WebSocket and fetch", "node", "Debian: nodejs", "", `
const http = require("http");
http.get("http://%s/events", res => { let last = "", n = 0;
  res.on("data", d => { last = d.toString(); if (n++ == 0) console.log("open") });
  res.on("end", () => console.log("closed", res.complete, last.endsWith("\n\n"))); });
`, "closed true true"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			program := need(t, tt.program, tt.from)
			flag := "-c"
			if tt.program == "node" {
				flag = "-e"
			}
			if tt.probe != "" {
				if out, err := exec.Command(program, flag, tt.probe).CombinedOutput(); err != nil {
					if os.Getenv(requireInterop) != "" {
						t.Fatalf("%v: %s", err, out)
					}
					t.Skipf("%s fails here: %s", tt.probe, out)
				}
			}
			app, err := startDemoApp(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(app.stop)
			p, addr := front(t, app.http.Addr().String(), "--lameduck", "1s", "--drain-timeout", "9s", "--closing-window", "2s")
			r, w := io.Pipe()
			cmd := background(t, w, program, flag, fmt.Sprintf(tt.script, addr))
			lines := make(chan string, 16)
			go func() {
				var all bytes.Buffer
				told := false
				for b := make([]byte, 4096); ; {
					n, err := r.Read(b)
					all.Write(b[:n])
					if !told && strings.Contains(all.String(), "open\n") {
						told = true
						lines <- "open"
					}
					if err != nil {
						lines <- all.String()
						return
					}
				}
			}()
			if got := <-lines; got != "open" {
				t.Fatalf("the client said %q", got)
			}
			if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if err := p.cmd.Wait(); err != nil {
				t.Errorf("exit: %v", err)
			}
			_ = cmd.Wait()
			_ = w.Close()
			if got := <-lines; !strings.Contains(got, tt.want) {
				t.Errorf("the client said %q, want %q", got, tt.want)
			}
		})
	}
}
