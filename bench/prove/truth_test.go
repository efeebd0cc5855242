package prove_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lastcall-proxy/lastcall/bench/app"
	"github.com/lastcall-proxy/lastcall/bench/benchtest"
	"github.com/lastcall-proxy/lastcall/bench/proof"
	"github.com/lastcall-proxy/lastcall/bench/prove"
)

// insideEnv is set where the test runs in a network namespace of its own, in which nobody else's packets are counted.
const insideEnv = "LASTCALL_TEST_TRUTH"

// requireNetns makes a missing namespace a failure, as in CI.
const requireNetns = "LASTCALL_REQUIRE_NETNS"

// What prove counts is what the app, the sidecar and the kernel have counted, whatever the app's manners, with and without a
// sidecar in front.
func TestGroundTruth(t *testing.T) {
	if os.Getenv(insideEnv) != "" {
		groundTruth(t)
		return
	}
	without := t.Skipf
	if os.Getenv(requireNetns) != "" {
		without = t.Fatalf
	}
	if _, err := exec.LookPath("ip"); err != nil {
		without("a network namespace needs ip (Debian: iproute2): %v", err)
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^TestGroundTruth$", "-test.v", "-test.timeout", "3m")
	cmd.Env = append(os.Environ(), insideEnv+"=1", benchtest.BinariesEnv+"="+benchtest.Binaries)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNET}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, unix.EPERM) {
		without("no privilege to make a network namespace: %v", err)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

func groundTruth(t *testing.T) {
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, sidecar := range []bool{false, true} {
		for _, manners := range []string{"drain", "exit", "ignore"} {
			name := manners
			if sidecar {
				name += " behind lastcall"
			}
			t.Run(name, func(t *testing.T) { truth(t, manners, sidecar) })
		}
	}
}

func truth(t *testing.T, manners string, sidecar bool) {
	pod := newPod(t, sidecar, manners)
	kernel := countPackets(t, pod.http, pod.tcp)
	// Everybody in a pod without native sidecars (KEP-753) gets the signal at once.
	kill := fmt.Sprintf("kill -TERM %d", pod.app.Process.Pid)
	if sidecar {
		kill += fmt.Sprintf(" %d", pod.target.Process.Pid)
	}
	specs := append(pod.loads(""), "tcp="+pod.tcp+",sessions=3,interval=50ms")
	got := prove.Run(t.Context(), plan(t, specs, func(p *prove.Plan) {
		p.Target, _ = prove.NewTarget(0, "", kill, false)
		p.For = 2 * time.Second
		if sidecar {
			p.For, p.Sidecars, p.ReportFiles = 5500*time.Millisecond, []string{pod.admin}, []string{pod.report}
		}
	}), io.Discard)
	if got.Verdict == proof.NoVerdict {
		t.Fatal(got.Reason)
	}
	seen := kernel.read(t)
	if manners == "ignore" {
		if err := pod.app.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
	}
	r := &got.Runs[0]
	for _, f := range r.Failures {
		if f.Attributed == "unexplained" {
			t.Errorf("unexplained: %+v", f)
		}
	}
	kernelAgrees(t, r, seen, len(specs))
	counts := ledgerOf(t, pod.ledger)
	appAgrees(t, r, counts, manners, sidecar)
	if sidecar {
		reportAgrees(t, pod.report, seen)
	}
	t.Logf("the kernel %+v; the app %+v", seen, counts)
}

// kernelAgrees: a SYN for each connection that a client tried, a SYN-ACK for each that it had. prove looks once at each
// load's target before it begins.
func kernelAgrees(t *testing.T, r *proof.Run, seen packets, looked int) {
	t.Helper()
	var c proof.Connections
	away := 0
	for i := range r.Loads {
		n := r.Loads[i].Connections
		c.Opened, c.Refused, c.Failed = c.Opened+n.Opened, c.Refused+n.Refused, c.Failed+n.Failed
	}
	for _, f := range r.Failures {
		if strings.Contains(f.Wire, "RST before anything was sent") {
			away++
		}
	}
	if want := c.Opened + c.Refused + c.Failed + uint64(looked); seen.SYN < want || seen.SYN > want+seen.Again {
		t.Errorf("the kernel saw %d SYN, %d of them repeated, the clients tried %d times: %+v", seen.SYN, seen.Again, want, c)
	}
	if want := c.Opened + uint64(looked+away); seen.SYNACK != want {
		t.Errorf("the kernel saw %d SYN-ACK, the clients had %d connections: %+v, %d turned away", seen.SYNACK, want, c, away)
	}
	if refused := c.Refused - uint64(away); seen.Refusals != refused {
		t.Errorf("the kernel saw %d refusals, the clients %d", seen.Refusals, refused)
	}
	resets := 0
	for _, f := range r.Failures {
		if f.Outcome == "reset" {
			resets++
		}
	}
	if resets > int(seen.RST) {
		t.Errorf("the clients saw %d resets, the kernel %d", resets, seen.RST)
	}
}

func ledgerOf(t *testing.T, file string) (counts app.Counts) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		if b, err := os.ReadFile(file); err == nil && json.Unmarshal(b, &counts) == nil {
			return counts
		}
		if time.Since(began) > 10*time.Second {
			t.Fatal("the app wrote no ledger")
		}
	}
}

// appAgrees compares each kind's account with the app's own. Where nobody goes without a word they are equal; one that exits
// at once may have answered what its client never got: each of those is a failure in the client's account.
func appAgrees(t *testing.T, r *proof.Run, counts app.Counts, manners string, sidecar bool) {
	t.Helper()
	type sum struct{ good, reached, sessions, sent, received, unanswered uint64 }
	sums := map[string]*sum{}
	for i := range r.Loads {
		l := &r.Loads[i]
		kind := strings.TrimSuffix(l.Kind, "-new")
		s := sums[kind]
		if s == nil {
			s = &sum{}
			sums[kind] = s
		}
		s.good += l.Succeeded
		s.reached += l.Attempted - l.Outcomes["refused"]
		if l.Sessions != nil {
			s.sessions += uint64(l.Sessions.Opened)
			m := l.Sessions.Messages
			s.sent, s.received, s.unanswered = s.sent+m.Sent, s.received+m.Received, s.unanswered+m.Unanswered+m.Lost
		}
	}
	abrupt := manners == "exit"
	for kind, s := range sums {
		c := counts[kind]
		t.Logf("%-12s the clients %+v; the app %+v", kind, *s, c)
		if s.sessions == 0 {
			if c.Whole < s.good || c.Whole > s.good && !abrupt || c.Whole-s.good > s.reached-s.good || c.Begun > s.reached {
				t.Errorf("%s: the clients had %d answers to %d requests, the app gave %d to %d", kind, s.good, s.reached, c.Whole, c.Begun)
			}
			continue
		}
		if kind == "tcp" && c.Begun > 0 {
			c.Begun-- // prove's look whether somebody listens
		}
		if c.Begun < s.sessions || c.Begun > s.sessions && !abrupt && !sidecar {
			t.Errorf("%s: the clients had %d sessions, the app %d", kind, s.sessions, c.Begun)
		}
		if kind == "tcp" {
			continue // it counts bytes
		}
		if c.Sent < s.received || c.Sent-s.received > s.unanswered+s.sessions {
			t.Errorf("%s: the clients have received %d messages of the app's %d, and miss %d", kind, s.received, c.Sent, s.unanswered)
		}
		if kind != "sse" && (c.Received > s.sent || s.sent-c.Received > s.unanswered) {
			t.Errorf("%s: the app has received %d messages of the clients' %d, of which %d have no answer", kind, c.Received, s.sent, s.unanswered)
		}
	}
}

// reportAgrees: each connection that the kernel opened has a record at the sidecar.
func reportAgrees(t *testing.T, file string, seen packets) {
	t.Helper()
	var rep struct {
		Connections, Streams struct {
			Opened, Open uint64
			Fates        map[string]map[string]uint64
		}
		Problem string
	}
	b, err := os.ReadFile(filepath.Clean(file))
	if err != nil || json.Unmarshal(b, &rep) != nil {
		t.Fatalf("report: %v", err)
	}
	if n := rep.Connections.Opened; n+1 < seen.SYNACK || n > seen.SYNACK+2 { // one may be reset in the queue as the listener closes; the pod's start is looked at once before the counters begin
		t.Errorf("the sidecar has records of %d connections, the kernel of %d", n, seen.SYNACK)
	}
	if rep.Connections.Open != 0 || rep.Streams.Open != 0 || rep.Problem != "" {
		t.Errorf("books: %+v", rep)
	}
}
