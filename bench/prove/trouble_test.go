package prove_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lastcall-proxy/lastcall/bench/benchtest"
	"github.com/lastcall-proxy/lastcall/bench/proof"
)

// command is the tool as it runs.
type command struct {
	*exec.Cmd
	out, fault bytes.Buffer
	done       chan struct{}
}

func start(t *testing.T, args ...string) *command {
	t.Helper()
	c := &command{Cmd: exec.Command(benchtest.Path("lastcallctl"), args...), done: make(chan struct{})}
	c.Stdout, c.Stderr = &c.out, &c.fault
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = c.Wait(); close(c.done) }()
	t.Cleanup(func() { _ = c.Process.Kill(); <-c.done })
	return c
}

// ends waits for the end and checks the status and what was said.
func (c *command) ends(t *testing.T, within time.Duration, status int, says string) {
	t.Helper()
	select {
	case <-c.done:
	case <-time.After(within):
		t.Fatalf("%v: runs on after %v", c.Args, within)
	}
	if got := c.ProcessState.ExitCode(); got != status || !strings.Contains(c.fault.String(), says) {
		t.Errorf("%v: status %d, %q; want %d and a word about %s", c.Args[1:], got, c.fault.String(), status, says)
	}
}

func document(t *testing.T, path string) *proof.Proof {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var p proof.Proof
	if err := json.Unmarshal(b, &p); err != nil {
		t.Fatalf("%v: %.200s", err, b)
	}
	return &p
}

// mute accepts and answers nothing.
func mute(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = c.Close() })
		}
	}()
	t.Cleanup(func() { _ = ln.Close() })
	return ln.Addr().String()
}

// A signal ends a proof soon, whatever it waits for, with what is known so far; a second one a second later ends it at once.
func TestSignalsEndIt(t *testing.T) {
	pod := newPod(t, false, "drain")
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		for name, target := range map[string]string{"a server that answers": pod.http, "one that does not": mute(t)} {
			t.Run(fmt.Sprint(sig, " ", name), func(t *testing.T) {
				t.Parallel()
				file := filepath.Join(t.TempDir(), "j")
				c := start(t, "prove", "--none", "--load", "http1="+target+",rate=5,timeout=5m", "--warmup", "100ms", "--baseline", "1m", "--json", file)
				time.Sleep(500 * time.Millisecond)
				_ = c.Process.Signal(sig)
				_ = c.Process.Signal(sig) // timeout(1) does that
				c.ends(t, 10*time.Second, 3, "interrupted")
				if p := document(t, file); !p.Partial || p.Verdict != proof.NoVerdict || p.Runs[0].Loads[0].Failed != 0 {
					t.Errorf("%+v", p)
				}
			})
		}
	}
}

// An interrupt while the last answers are waited for breaks them off: that is no proof.
func TestInterruptWhileWaiting(t *testing.T) {
	pod := newPod(t, false, "drain")
	file := filepath.Join(t.TempDir(), "j")
	c := start(t, "prove", "--load", "http1="+pod.http+",rate=20", "--load", "websocket=ws://"+pod.http+"/ws,sessions=3,interval=20ms", "--exec", fmt.Sprintf("kill -STOP %d", pod.app.Process.Pid),
		"--warmup", "100ms", "--baseline", "300ms", "--for", "500ms", "--settle", "0s", "--json", file)
	time.Sleep(2 * time.Second)
	_ = c.Process.Signal(syscall.SIGINT)
	c.ends(t, 10*time.Second, 3, "interrupted")
	_ = pod.app.Process.Signal(syscall.SIGCONT)
	if p := document(t, file); !p.Partial || p.Verdict != proof.NoVerdict {
		t.Errorf("%s, partial %v: %s", p.Verdict, p.Partial, p.Reason)
	}
}

// What a command started goes with us for as long as it runs; what it left behind when it had come to its end stays.
func TestCommandsOfTheTrigger(t *testing.T) {
	pod := newPod(t, false, "drain")
	dir := t.TempDir()
	pid := func(name string) int {
		for began := time.Now(); time.Since(began) < 5*time.Second; time.Sleep(10 * time.Millisecond) {
			if b, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
				if n, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil {
					return n
				}
			}
		}
		t.Fatalf("%s: no process", name)
		return 0
	}
	alive := func(pid int) bool {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err == nil && !strings.Contains(string(b), ") Z ")
	}
	quick := []string{"prove", "--load", "http1=" + pod.http, "--warmup", "100ms", "--baseline", "300ms", "--for", "500ms", "--settle", "0s", "--exec"}

	c := start(t, append(quick, `(trap "" TERM; echo $$ >/dev/null; sh -c 'echo $PPID' >/dev/null; exec sh -c "trap '' TERM; echo \$\$ >`+dir+`/a; while :; do sleep 0.1; done") & sleep 60; exit 1`)...)
	stubborn := pid("a")
	c.ends(t, 20*time.Second, 3, "--exec's command still ran")
	for began := time.Now(); alive(stubborn); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > 5*time.Second {
			_ = syscall.Kill(stubborn, syscall.SIGKILL)
			t.Fatal("a child that ignores SIGTERM is left behind")
		}
	}

	c = start(t, append(quick, `sleep 61 >/dev/null 2>&1 & echo $! >`+dir+`/b`)...)
	server := pid("b")
	c.ends(t, 20*time.Second, 0, "")
	if !alive(server) {
		t.Error("what the command restarted was ended")
	}
	_ = syscall.Kill(server, syscall.SIGKILL)

	start(t, append(quick, "exit 7")...).ends(t, 20*time.Second, 3, "--exec: the command failed: exit status 7")
}

// Files that can't be written are said before anything is done; a reader that goes does not cost the others.
func TestOutputs(t *testing.T) {
	pod := newPod(t, false, "drain")
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	quick := []string{"prove", "--none", "--load", "http1=" + pod.http, "--warmup", "100ms", "--baseline", "300ms", "--for", "300ms", "--settle", "0s"}
	if err := syscall.Mkfifo(at("pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, append(quick, "--json", at("pipe"))...).ends(t, 5*time.Second, 2, "--json")
	start(t, append(quick, "--json", at("same"), "--junit", at("same"))...).ends(t, 5*time.Second, 2, "--junit: --json has that file already")
	start(t, append(quick, "--json", dir)...).ends(t, 5*time.Second, 2, "--json")

	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(benchtest.Path("lastcallctl"), append(quick, "--json", at("j"))...)
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = w.Close(), r.Close()
	_ = cmd.Wait()
	if p := document(t, at("j")); p.Verdict != proof.Proven || cmd.ProcessState.ExitCode() != 3 {
		t.Errorf("%s, status %v", p.Verdict, cmd.ProcessState)
	}
}

// An app that hangs behind its sidecar is who is to blame, by the request that it has not answered.
func TestHungAppIsNamed(t *testing.T) {
	pod := newPod(t, true, "drain")
	file := filepath.Join(t.TempDir(), "j")
	c := start(t, "prove", "--load", "http1="+pod.http+",rate=20,conns=2,timeout=1s", "--load", "http1-new="+pod.http+",rate=5,timeout=1s", "--signal-pid", strconv.Itoa(pod.app.Process.Pid), "--signal", "STOP",
		"--sidecar", pod.admin, "--warmup", "200ms", "--baseline", "500ms", "--for", "2s", "--settle", "2s", "--json", file)
	c.ends(t, 30*time.Second, 1, "")
	_ = pod.app.Process.Signal(syscall.SIGCONT)
	r := &document(t, file).Runs[0]
	byApp := count(r, func(f proof.Failure) bool { return f.Attributed == "app" })
	if len(r.Failures) == 0 || byApp != len(r.Failures) || r.Unexplained != 0 {
		t.Errorf("%d of %d by the app, %d unexplained", byApp, len(r.Failures), r.Unexplained)
	}
	for _, f := range r.Failures {
		if f.Outcome == "timeout" && f.Wire == "nothing came" && (f.FateID == "" || strings.Contains(f.Fate, "completed")) {
			t.Errorf("%+v", f)
		}
	}
}

// A sidecar that is killed takes its connections with it: that is the target's doing, and nothing is unexplained. TCP that owes
// no answer at that moment has nothing but its FIN to go by.
func TestKilledSidecarIsTheTarget(t *testing.T) {
	pod := newPod(t, true, "drain")
	file := filepath.Join(t.TempDir(), "j")
	c := start(t, "prove", "--load", "http1="+pod.http+",rate=100,conns=4", "--load", "websocket=ws://"+pod.http+"/ws,sessions=3,interval=10ms", "--load", "sse="+pod.http+"/events?every=10ms,sessions=3", "--load", "tcp="+pod.tcp+",sessions=3,interval=10ms",
		"--signal-pid", strconv.Itoa(pod.target.Process.Pid), "--signal", "KILL", "--sidecar", pod.admin, "--warmup", "200ms", "--baseline", "1s", "--for", "1s", "--settle", "1s", "--json", file)
	c.ends(t, 30*time.Second, 1, "")
	r := &document(t, file).Runs[0]
	for _, f := range r.Failures {
		if f.Attributed != "target" {
			t.Errorf("%+v", f)
		}
	}
	if cut := count(r, func(f proof.Failure) bool { return f.Session }); cut < 6 || cut > 9 || r.Unexplained != 0 {
		t.Errorf("%d sessions cut, %d unexplained", cut, r.Unexplained)
	}
}

// A run that ends before the drain has told anybody to go has no verdict.
func TestRunThatIsTooShort(t *testing.T) {
	pod := newPod(t, true, "drain")
	c := start(t, "prove", "--load", "websocket=ws://"+pod.http+"/ws,sessions=3,interval=50ms", "--signal-pid", strconv.Itoa(pod.target.Process.Pid), "--sidecar", pod.admin,
		"--warmup", "100ms", "--baseline", "300ms", "--for", "500ms", "--settle", "0s", "--max-cut-streams", "0")
	c.ends(t, 30*time.Second, 3, "lameduck phase")
}

// Documents that nobody has written are refused with a word, in no time.
func TestReportOfAnything(t *testing.T) {
	dir := t.TempDir()
	for text, says := range map[string]string{
		`{"schema":"lastcall.prove/v1"}`:                                                               "verdict",
		`{"schema":"lastcall.prove/v1","verdict":"hurray"}`:                                            "verdict",
		`{"schema":"lastcall.prove/v1","verdict":"proven"}`:                                            "runs",
		`{"schema":"lastcall.prove/v1","verdict":"proven","runs":[{"end_s":1e300}]}`:                   "runs[0].end_s",
		`{"schema":"lastcall.prove/v1","verdict":"proven","runs":[{"phases":[{"from_s":-1e12}]}]}`:     "phases[0].from_s",
		`{"schema":"lastcall.rehearse/v1","verdict":"met","clients":[{"at_s":1e300}]}`:                 "clients[0]",
		`{"schema":"lastcall.rehearse/v1","verdict":"met","clients":[{"at_s":1,"reconnect_ms":1e99}]}`: "clients[0]",
		`{"schema":"lastcall.rehearse/v1"}`:                                                            "verdict",
		`{"schema":`:                                                                                   "JSON",
	} {
		path := filepath.Join(dir, "x")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, form := range []string{"text", "html", "markdown", "junit"} {
			start(t, "report", path, "-o", form).ends(t, 5*time.Second, 2, says)
		}
	}
	c := &command{Cmd: exec.Command(benchtest.Path("lastcallctl"), "report", "-"), done: make(chan struct{})}
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Stderr, c.Stdout = &c.fault, &c.out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = c.Wait(); close(c.done) }()
	_, _ = io.WriteString(in, `{"schema":"lastcall.prove/v1","verdict":"no_verdict","reason":"none"}`)
	_ = in.Close()
	c.ends(t, 5*time.Second, 0, "")
	if !strings.Contains(c.out.String(), "NO VERDICT: none") {
		t.Errorf("%s", c.out.String())
	}
}
