package prove_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lastcall-proxy/lastcall/bench/benchtest"
	"github.com/lastcall-proxy/lastcall/bench/load"
	"github.com/lastcall-proxy/lastcall/bench/proof"
	"github.com/lastcall-proxy/lastcall/bench/prove"
)

// requireInterop makes a missing server a failure, as in CI.
const requireInterop = "LASTCALL_REQUIRE_INTEROP"

func need(t *testing.T, name, from string) {
	t.Helper()
	if _, err := exec.LookPath(name); err == nil {
		return
	}
	if os.Getenv(requireInterop) != "" {
		t.Fatalf("%s is not installed (%s)", name, from)
	}
	t.Skipf("%s is not installed (%s)", name, from)
}

// server starts somebody else's proxy in front of the app and gives its address and its main process.
type server func(t *testing.T, dir, app string) (addr string, cmd *exec.Cmd)

func foreign(t *testing.T, addr, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); <-done })
	benchtest.WaitFor(t, addr)
	return cmd
}

func config(t *testing.T, dir, text string) string {
	t.Helper()
	path := filepath.Join(dir, "config")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func nginx(t *testing.T, dir, app string) (string, *exec.Cmd) {
	return nginxWith(t, dir, "map $http_upgrade $up { default upgrade; '' ''; } upstream u { server "+app+"; keepalive 50; }",
		"proxy_pass http://u; proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $up; proxy_buffering off;")
}

// nginxWith starts one with these lines for all of HTTP, and these for every path.
func nginxWith(t *testing.T, dir, all, path string) (string, *exec.Cmd) {
	t.Helper()
	need(t, "nginx", "Debian: nginx")
	addr := benchtest.Free(t)
	file := config(t, dir, "worker_processes 1; daemon off; pid "+dir+"/pid; error_log "+dir+"/error.log;\nevents { worker_connections 1000; }\n"+
		"http { access_log off; "+all+"\n server { listen "+addr+"; location / { "+path+" } } }\n")
	return addr, foreign(t, addr, "nginx", "-c", file)
}

func haproxy(t *testing.T, dir, app string) (string, *exec.Cmd) {
	need(t, "haproxy", "Debian: haproxy")
	addr := benchtest.Free(t)
	path := config(t, dir, "global\n  nbthread 1\ndefaults\n  mode http\n  timeout connect 5s\n  timeout client 1m\n  timeout server 1m\n  timeout tunnel 1m\nlisten l\n  bind "+addr+"\n  server s "+app+"\n")
	return addr, foreign(t, addr, "haproxy", "-f", path)
}

// What servers that nobody here wrote do to each protocol when they are told to stop: nothing is unexplained, and what must
// be so by their own documentation is so. The table is bench/README.md's.
func TestRealServers(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute and other people's servers")
	}
	const graceful = "drain_listeners?graceful"
	for _, tt := range []struct {
		name   string
		start  server
		signal string // or the path of an Envoy's admin
		// what is certain, by kind: "told", "cut", "kept" sessions, "whole" requests or "refused" ones afterwards
		want map[string]string
	}{
		{"nginx reload (HUP)", nginx, "HUP", map[string]string{"http1-new": "whole", "websocket": "kept", "sse": "kept"}},
		{"nginx quit (QUIT)", nginx, "QUIT", map[string]string{"http1-new": "refused", "websocket": "kept", "sse": "kept"}},
		{"nginx stop (TERM)", nginx, "TERM", map[string]string{"http1-new": "refused", "websocket": "cut", "sse": "cut"}},
		{"HAProxy soft-stop (USR1)", haproxy, "USR1", map[string]string{"http1-new": "refused", "websocket": "kept", "sse": "kept"}},
		{"Envoy (TERM)", envoy, "TERM", map[string]string{"http1-new": "refused", "websocket": "cut", "sse": "cut"}},
		{"Envoy drain_listeners?graceful", envoy, graceful, map[string]string{"http1-new": "refused", "websocket": "kept", "sse": "kept"}},
		{"Node ws, no handler (TERM)", node("none"), "TERM", map[string]string{"websocket": "cut"}},
		{"Node ws, close handler (TERM)", node("close"), "TERM", map[string]string{"websocket": "told"}},
		{"grpc-go Stop (INT)", grpcGo, "INT", map[string]string{"grpc-unary": "refused", "grpc-stream": "cut"}},
		{"grpc-go GracefulStop (TERM)", grpcGo, "TERM", map[string]string{"grpc-unary": "refused", "grpc-stream": "kept"}},
		{"HAProxy hard-stop (TERM)", haproxy, "TERM", map[string]string{"http1-new": "refused", "websocket": "cut", "sse": "cut"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			app := newPod(t, false, "drain")
			addr, cmd := tt.start(t, t.TempDir(), app.http)
			webSocket := "websocket=ws://" + addr + "/ws,sessions=3,interval=50ms"
			loads := []string{"http1=" + addr + ",rate=50,conns=3", "http1-new=" + addr + ",rate=20,conns=3", webSocket, "sse=" + addr + "/events?every=50ms,sessions=3,interval=50ms"}
			switch {
			case strings.HasPrefix(tt.name, "grpc-go"):
				loads = []string{"grpc-unary=" + addr + ",rate=50,conns=2", "grpc-stream=" + addr + ",sessions=3,interval=50ms"}
			case strings.HasPrefix(tt.name, "Node"):
				loads = []string{webSocket}
			}
			p := plan(t, loads, func(p *prove.Plan) {
				p.For, p.Reconnect = 2*time.Second, load.Never
				if tt.signal == graceful {
					p.Target = envoyDrain(t, filepath.Join(filepath.Dir(cmd.Args[2]), "admin"))
					return
				}
				p.Target = signalTo(t, cmd, tt.signal)
			})
			got := prove.Run(t.Context(), p, io.Discard)
			if got.Verdict == proof.NoVerdict {
				t.Fatal(got.Reason)
			}
			r := &got.Runs[0]
			if r.Unexplained != 0 {
				t.Errorf("unexplained: %d of %+v", r.Unexplained, r.Failures)
			}
			for i := range r.Loads {
				l := &r.Loads[i]
				is := account(l)
				t.Logf("| %s | %s | %s |", tt.name, l.Kind, is)
				if want, ok := tt.want[l.Kind]; ok && !strings.HasPrefix(is, want) {
					t.Errorf("%s: got %q, want %s", l.Kind, is, want)
				}
			}
		})
	}
}

// account puts a load into a few words.
func account(l *proof.Load) string {
	s := l.Sessions
	var parts []string
	for o, n := range l.Outcomes {
		if o != "ok" && o != "told" {
			parts = append(parts, fmt.Sprintf("%d %s", n, o))
		}
	}
	rest := strings.Join(parts, ", ")
	switch {
	case s == nil && l.Failed == 0:
		return "whole"
	case s == nil && l.Failed == l.Outcomes["refused"]:
		return "refused: nothing failed until nobody listened"
	case s == nil && l.Outcomes["refused"] > 0:
		return "refused in the end, and " + rest
	case s == nil:
		return rest
	case s.Ended == 0:
		return "kept"
	case s.Cut == s.Ended:
		return "cut: " + rest
	case s.Cut == 0:
		return "told"
	}
	return "some told, some cut: " + rest
}
