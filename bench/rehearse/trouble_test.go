package rehearse_test

import (
	"bytes"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lastcall-proxy/lastcall/bench/benchtest"
)

// begin starts a rehearsal and waits until the sidecar's word for it contains says.
func begin(t *testing.T, p *pod, says string, args ...string) (cmd *exec.Cmd, out, fault *bytes.Buffer) {
	t.Helper()
	cmd = exec.Command(benchtest.Path("lastcallctl"), append([]string{"rehearse", "--sidecar", p.admin, "--share", "100%", "--yes", "-o", "json"}, args...)...)
	out, fault = &bytes.Buffer{}, &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, fault
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	for began := time.Now(); !strings.Contains(get(t, "http://"+p.admin+"/v1/rehearsal"), says); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > 10*time.Second {
			t.Fatalf("it has not begun: %s", fault)
		}
	}
	return cmd, out, fault
}

// waited ends with the command, or fails the test after a while.
func waited(t *testing.T, cmd *exec.Cmd, within time.Duration) {
	t.Helper()
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(within):
		t.Fatalf("%v: runs on after %v", cmd.Args[1:], within)
	}
}

// A drain ends a rehearsal, also one that is over at the sidecar and only watched: what the clients meet then is the drain's.
func TestDrainEndsTheWatch(t *testing.T) {
	for _, args := range [][]string{{"--mode", "polite", "--watch", "1m"}, {"--mode", "half-open", "--hold", "1m", "--watch", "1m"}} {
		t.Run(args[1], func(t *testing.T) {
			t.Parallel()
			p := newPod(t)
			_, stop := crowd(t, p, 1, 0)
			defer stop()
			cmd, out, fault := begin(t, p, `"taken":3`, append(args, "--max-never", "0")...)
			resp, err := (&http.Client{Timeout: 5 * time.Second}).Post("http://"+p.admin+"/v1/drain", "", nil)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			waited(t, cmd, 10*time.Second)
			r := result(t, out.String())
			if cmd.ProcessState.ExitCode() != 3 || !r.Partial || r.Verdict != "none" || !strings.Contains(r.Reason, "drain") {
				t.Errorf("%v, %s: %s, %s", cmd.ProcessState, fault, r.Verdict, r.Reason)
			}
			for _, c := range r.Clients {
				if c.Outcome != "returned" && (c.Outcome != "not_watched" || c.Class != "unknown") {
					t.Errorf("%+v", c)
				}
			}
			for _, a := range r.Advice {
				if strings.Contains(a, "did not come back") || strings.Contains(a, "did not notice") {
					t.Errorf("advice: %s", a)
				}
			}
		})
	}
}

// Who is interrupted while watching does not end the rehearsal that somebody else has begun meanwhile.
func TestInterruptEndsOnesOwnAlone(t *testing.T) {
	p := newPod(t)
	_, stop := crowd(t, p, 1, 0)
	defer stop()
	first, _, _ := begin(t, p, `"status":"over"`, "--mode", "polite", "--watch", "1m")
	time.Sleep(time.Second) // they are back, all but those who never are
	second, _, _ := begin(t, p, `"mode":"half-open","status":"running"`, "--mode", "half-open", "--hold", "20s", "--watch", "1m")
	_ = first.Process.Signal(syscall.SIGINT)
	waited(t, first, 10*time.Second)
	if s := get(t, "http://"+p.admin+"/v1/rehearsal"); !strings.Contains(s, `"status":"running"`) {
		t.Errorf("the other one: %s", s)
	}
	_ = second.Process.Signal(syscall.SIGINT)
	waited(t, second, 10*time.Second)
	if s := get(t, "http://"+p.admin+"/v1/rehearsal"); !strings.Contains(s, `"status":"cancelled"`) || !strings.Contains(s, `"held":0`) {
		t.Errorf("one's own: %s", s)
	}
}

// A sidecar that has stopped answering holds nobody who wants to go.
func TestInterruptWhileSubscribing(t *testing.T) {
	p := newPod(t)
	if err := p.sidecar.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.sidecar.Process.Signal(syscall.SIGCONT) }()
	cmd := exec.Command(benchtest.Path("lastcallctl"), "rehearse", "--sidecar", p.admin, "--share", "1%")
	var fault bytes.Buffer
	cmd.Stderr = &fault
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(500 * time.Millisecond)
	_ = cmd.Process.Signal(syscall.SIGINT)
	waited(t, cmd, 5*time.Second)
	if cmd.ProcessState.ExitCode() != 3 || !strings.Contains(fault.String(), p.admin) {
		t.Errorf("%v: %s", cmd.ProcessState, &fault)
	}
}

// Errors name the flag that is meant.
func TestLandingIsNamed(t *testing.T) {
	p := newPod(t)
	nobody := benchtest.Free(t)
	if _, e := ctl(t, 3, "rehearse", "--sidecar", p.admin, "--landing", nobody); !strings.Contains(e, "--landing "+nobody) || strings.Contains(e, "--sidecar") {
		t.Errorf("%s", e)
	}
}
