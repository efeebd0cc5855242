package prove_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lastcall-proxy/lastcall/bench/benchtest"
	"github.com/lastcall-proxy/lastcall/bench/load"
	"github.com/lastcall-proxy/lastcall/bench/proof"
	"github.com/lastcall-proxy/lastcall/bench/prove"
)

func TestMain(m *testing.M) {
	if addr := os.Getenv(asGRPCServer); addr != "" {
		serveGRPC(addr)
		return
	}
	benchtest.Main(m)
}

// pod is an app with or without a sidecar.
type pod struct {
	http, tcp, admin, report, telemetry, ledger string
	target, app                                 *exec.Cmd
}

func newPod(t *testing.T, sidecar bool, manners string) pod {
	t.Helper()
	p := pod{http: benchtest.Free(t), tcp: benchtest.Free(t), ledger: filepath.Join(t.TempDir(), "ledger")}
	p.app = benchtest.Spawn(t, p.http, "lastcallctl", "app", "--http", p.http, "--tcp", p.tcp, "--on-sigterm", manners, "--drain-timeout", "3s", "--ledger", p.ledger)
	p.target = p.app
	if !sidecar {
		return p
	}
	app, tcp := p.http, p.tcp
	p.http, p.tcp, p.admin, p.telemetry, p.report = benchtest.Free(t), benchtest.Free(t), benchtest.Free(t), benchtest.Free(t), filepath.Join(t.TempDir(), "report")
	p.target = benchtest.Spawn(t, p.http, "lastcall", "run", "--inbound", p.http+"="+app, "--inbound", p.tcp+"="+tcp, "--telemetry", p.telemetry, "--admin", p.admin, "--report-file", p.report,
		"--lameduck", "1500ms", "--drain-timeout", "4s", "--closing-window", "1s") // a busy machine may look at readiness late
	benchtest.WaitFor(t, p.admin)
	benchtest.WaitFor(t, p.telemetry)
	return p
}

// loads are all kinds against a pod.
func (p pod) loads(options string) []string {
	return []string{
		"http1=" + p.http + ",rate=50,conns=3" + options, "http1-new=" + p.http + ",rate=20,conns=3" + options, "http2=" + p.http + ",rate=50,conns=2" + options, "grpc-unary=" + p.http + ",rate=30,conns=2" + options,
		"grpc-stream=" + p.http + ",sessions=3,interval=50ms" + options, "websocket=ws://" + p.http + "/ws,sessions=3,interval=50ms" + options,
		"sse=" + p.http + "/events?every=50ms,sessions=3,interval=50ms" + options,
	}
}

func plan(t *testing.T, specs []string, change func(*prove.Plan)) *prove.Plan {
	t.Helper()
	p := prove.Defaults()
	p.Warmup, p.Baseline, p.For, p.Settle, p.Reconnect = 200*time.Millisecond, 500*time.Millisecond, 5500*time.Millisecond, 2*time.Second, load.Never
	for _, text := range specs {
		s, err := load.ParseSpec(text)
		if err != nil {
			t.Fatal(err)
		}
		p.Loads = append(p.Loads, s)
	}
	change(&p)
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	return &p
}

func signalTo(t *testing.T, cmd *exec.Cmd, name string) prove.Target {
	t.Helper()
	tg, err := prove.NewTarget(cmd.Process.Pid, name, "", false)
	if err != nil {
		t.Fatal(err)
	}
	return tg
}

func count(r *proof.Run, f func(proof.Failure) bool) (n int) {
	for _, v := range r.Failures {
		if f(v) {
			n++
		}
	}
	return n
}

// A sidecar in front and somewhere to go: nobody notices, and the numbers say so.
func TestCleanRolloutIsProven(t *testing.T) {
	old, next := newPod(t, true, "drain"), newPod(t, true, "drain")
	p := plan(t, old.loads(",ready=http://"+old.telemetry+"/readyz,next="+next.http), func(p *prove.Plan) {
		p.Target, p.Sidecars, p.ReportFiles, p.Reconnect = signalTo(t, old.target, ""), []string{old.admin}, []string{old.report}, load.Backoff
		p.Limits.CutStreams, p.Limits.LostMessages, p.Limits.ReconnectP99 = 0, 0, 3*time.Second
	})
	got := prove.Run(t.Context(), p, io.Discard)
	if got.Verdict != proof.Proven || len(got.Runs) != 1 {
		t.Fatalf("%s: %s; runs %+v", got.Verdict, got.Reason, got.Runs)
	}
	r := got.Runs[0]
	var names []string
	for _, ph := range r.Phases {
		names = append(names, ph.Name)
	}
	if s := strings.Join(names, " "); !strings.HasPrefix(s, "before lameduck draining closing") || r.Exited == nil {
		t.Errorf("phases: %s, gone %v", s, r.Exited)
	}
	for _, l := range r.Loads {
		if s := l.Sessions; s != nil && (s.Ended != 3 || s.Reconnected != 3 || s.Messages.Received == 0) {
			t.Errorf("%s: %+v", l.Kind, s)
		}
	}
}

// Nowhere to go: each failure is the sidecar's refusal or nobody's, none is unexplained, and no session was cut.
func TestEveryFailureHasACause(t *testing.T) {
	pod := newPod(t, true, "drain")
	got := prove.Run(t.Context(), plan(t, pod.loads(""), func(p *prove.Plan) {
		p.Target, p.Sidecars, p.ReportFiles = signalTo(t, pod.target, "TERM"), []string{pod.admin}, []string{pod.report}
		p.Limits.CutStreams = 0
	}), io.Discard)
	if len(got.Runs) == 0 {
		t.Fatalf("%s: %s", got.Verdict, got.Reason)
	}
	r := &got.Runs[0]
	if got.Verdict != proof.NotProven || r.Unexplained != 0 || len(r.Failures) == 0 {
		t.Errorf("%s: %s; unexplained %d of %d", got.Verdict, got.Reason, r.Unexplained, len(r.Failures))
	}
	byLastcall := count(r, func(f proof.Failure) bool { return f.Attributed == "lastcall" && f.FateID != "" })
	byNobody := count(r, func(f proof.Failure) bool { return f.Attributed == "target" && f.Outcome == "refused" })
	if byLastcall == 0 || byNobody == 0 || byLastcall+byNobody != len(r.Failures) {
		t.Errorf("%d by lastcall, %d by nobody, of %d", byLastcall, byNobody, len(r.Failures))
		for _, f := range r.Failures {
			if f.Attributed != "lastcall" && f.Attributed != "target" {
				t.Errorf("%+v", f)
			}
		}
	}
	for _, th := range got.Thresholds {
		if th.Name == "max_cut_streams" && !th.OK {
			t.Errorf("sessions were cut: %+v", th)
		}
	}
}

// Clients that want to come back and find nobody are no reconnect of 0 s.
func TestNobodyBackIsNotProven(t *testing.T) {
	pod := newPod(t, true, "drain")
	got := prove.Run(t.Context(), plan(t, append(pod.loads("")[4:], "tcp="+pod.tcp+",sessions=3,interval=50ms"), func(p *prove.Plan) {
		p.Target, p.Sidecars, p.ReportFiles, p.Reconnect = signalTo(t, pod.target, ""), []string{pod.admin}, []string{pod.report}, load.Backoff
		p.Limits.ReconnectP99 = time.Minute
	}), io.Discard)
	if got.Verdict != proof.NotProven || !strings.Contains(got.Reason, "12 of 12 clients were not back") {
		t.Errorf("%s: %s", got.Verdict, got.Reason)
	}
	for _, l := range got.Runs[0].Loads {
		if s := l.Sessions; s.Ended != 3 || s.Away != 3 || s.Reconnected != 0 || len(s.AwayMS) != 3 || s.AwayMS[0] < 100 {
			t.Errorf("%s: %+v", l.Kind, s)
		}
		if !slices.ContainsFunc(got.Runs[0].Advice, func(a string) bool {
			return strings.Contains(a, "3 clients were not back") && strings.HasSuffix(a, "("+l.Kind+")")
		}) {
			t.Errorf("%s: no advice in %q", l.Kind, got.Runs[0].Advice)
		}
	}
	var text strings.Builder
	if err := got.Text(&text); err != nil || !strings.Contains(text.String(), "0 came back, 3 not by the end") {
		t.Errorf("%v: %s", err, text.String())
	}
}

// Without a sidecar: an app that drains tells its sessions, one that goes at once cuts them, one that ignores the signal does
// nothing; the app's own ledger agrees.
func TestMannersWithoutSidecar(t *testing.T) {
	for _, manners := range []string{"drain", "exit", "ignore"} {
		t.Run(manners, func(t *testing.T) {
			pod := newPod(t, false, manners)
			specs := append(pod.loads(""), "tcp="+pod.tcp+",sessions=3,interval=50ms")
			got := prove.Run(t.Context(), plan(t, specs, func(p *prove.Plan) { p.Target, p.For = signalTo(t, pod.target, ""), 2*time.Second }), io.Discard)
			if len(got.Runs) == 0 {
				t.Fatalf("%s: %s", got.Verdict, got.Reason)
			}
			r := &got.Runs[0]
			for _, l := range r.Loads {
				s := l.Sessions
				switch {
				case s == nil:
				case manners == "ignore" && (s.Ended != 0 || s.Opened != 3),
					manners == "drain" && l.Kind != "tcp" && (s.Outcomes["told"] != 3 || s.Cut != 0), // a message may cross raw TCP's FIN
					manners == "exit" && (s.Ended != 3 || s.Cut == 0 && l.Kind != "tcp"):
					t.Errorf("%s: %+v", l.Kind, s)
				}
			}
			if gone := r.Exited != nil; gone == (manners == "ignore") {
				t.Errorf("gone: %t", gone)
			}
			if want := manners == "ignore"; (got.Verdict == proof.Proven) != want {
				t.Errorf("%s: %s", got.Verdict, got.Reason)
			}
			if manners == "ignore" {
				if err := pod.app.Process.Signal(syscall.SIGINT); err != nil {
					t.Fatal(err)
				}
			}
			ledgersAgree(t, pod.ledger, r)
		})
	}
}

// ledgersAgree: what the clients had answered is what the app has answered.
func ledgersAgree(t *testing.T, file string, r *proof.Run) {
	t.Helper()
	var counts map[string]struct{ Begun, Whole, Broken uint64 }
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		if b, err := os.ReadFile(file); err == nil && json.Unmarshal(b, &counts) == nil {
			break
		}
		if time.Since(began) > 10*time.Second {
			t.Fatal("the app wrote no ledger")
		}
	}
	for _, l := range r.Loads {
		if l.Kind != "grpc-unary" && l.Kind != "http2" {
			continue
		}
		// An app that goes at once may have answered what never came.
		if c := counts[l.Kind]; c.Whole < l.Succeeded || c.Begun > l.Attempted || c.Whole > l.Succeeded+2 {
			t.Errorf("%s: the clients' %d of %d, the app's %+v", l.Kind, l.Succeeded, l.Attempted, c)
		}
	}
}

// No baseline, no verdict.
func TestNoBaselineNoVerdict(t *testing.T) {
	srv := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusInternalServerError) })}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = srv.Serve(ln) }()
	defer func() { _ = srv.Close() }()
	none := func(p *prove.Plan) { p.Target, _ = prove.NewTarget(0, "", "", true) }
	touched := filepath.Join(t.TempDir(), "touched")
	for name, tt := range map[string]struct {
		spec   string
		change func(*prove.Plan)
		says   string
	}{
		"it errs": {"http1=" + ln.Addr().String(), func(p *prove.Plan) { p.Target, _ = prove.NewTarget(0, "", "touch "+touched, false) }, "baseline errs"},
		"nobody":  {"http1=" + benchtest.Free(t), none, "nobody there"},
		"sidecar": {"http1=" + ln.Addr().String(), func(p *prove.Plan) { none(p); p.Sidecars = []string{benchtest.Free(t)} }, "--sidecar"},
		"no pid":  {"http1=" + ln.Addr().String(), func(p *prove.Plan) { p.Target, _ = prove.NewTarget(1<<22-1, "", "", false) }, "no such process"},
	} {
		t.Run(name, func(t *testing.T) {
			got := prove.Run(t.Context(), plan(t, []string{tt.spec}, tt.change), io.Discard)
			if got.Verdict != proof.NoVerdict || !strings.Contains(got.Reason, tt.says) {
				t.Errorf("%s: %s", got.Verdict, got.Reason)
			}
		})
	}
	if _, err := os.Stat(touched); err == nil {
		t.Error("something was terminated although the baseline erred")
	}
}

// Interrupted: partial, and it says so; what the trigger started is ended.
func TestInterrupted(t *testing.T) {
	pod := newPod(t, false, "drain")
	ctx, cancel := context.WithCancel(t.Context())
	file := filepath.Join(t.TempDir(), "pid")
	p := plan(t, []string{"http1=" + pod.http}, func(p *prove.Plan) {
		p.Target, _ = prove.NewTarget(0, "", "echo $$ > "+file+"; sleep 60", false)
		p.For = time.Minute
	})
	go func() {
		for {
			if b, err := os.ReadFile(file); err == nil && len(b) > 0 {
				cancel()
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	got := prove.Run(ctx, p, io.Discard)
	if got.Verdict != proof.NoVerdict || !got.Partial || len(got.Runs) != 1 || got.Runs[0].Loads[0].Attempted == 0 {
		t.Errorf("%+v", got)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("/proc/" + strings.TrimSpace(string(b))); err == nil {
		t.Error("the command goes on")
	}
}

func TestReadPlan(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "empty",
		"load: [\"http1=a:1\"]\n":   "--signal-pid",
		"none: true\n":              "--load",
		"none: true\ncolour: red\n": "line 2: unknown key \"colour\"",
		"none: true\nload:\n- http1=a:1\n- cheese=a:1\n":                                 "line 4: load: kind",
		"none: true\nload: [\"http1=a:1\"]\nbaseline: soon\n":                            "line 3: baseline: \"soon\": want a duration",
		"none: true\nload: [\"http1=a:1\"]\nbaseline: 0s\n":                              "line 3: --baseline",
		"none: true\nexec: x\nload: [\"http1=a:1\"]\n":                                   "line 2: --signal-pid, --exec, --none",
		"none: true\nload: [\"http1=a:1\"]\nmax_cut_streams: 0\n":                        "line 3: --max-cut-streams",
		"none: true\nload: [\"http1=a:1\"]\nrepeat: x\n":                                 "line 3: repeat: \"x\": want a whole number",
		"none: yes please\nload: [\"http1=a:1\"]\n":                                      "line 1: none: \"yes please\": want true or false",
		"none: true\nload: http1=a:1\n":                                                  "line 2: load: want a list",
		"none: true\nload: []\n":                                                         "line 2: load: want a list",
		"none: true\nload:\n- {kind: http1}\n":                                           "line 3: load: want KIND=TARGET",
		"none: true\nload:\n- http1=a:1,rate=many\n":                                     "line 3: load: rate=many: want a number",
		"none: true\nload:\n- http1=a:1,rate=0\n":                                        "line 3: load: rate=0: want",
		"none: true\nload:\n- http1=a:1,rate=5,rate=6\n":                                 "line 3: load: rate=6: was there already",
		"none: true\nnone: true\n":                                                       "line 2: none: was there on line 1",
		"- load\n":                                                                       "line 1: want keys",
		"none: true\n---\nx: 1":                                                          "line 2: a second document",
		"a: [\n":                                                                         "line 1: did not find",
		"signal_pid: 0\nload: [\"http1=a:1\"]\n":                                         "line 1: signal_pid: \"0\": want a whole number above 0",
		"none: true\nload: [\"http1=a:1\"]\nfor: ~\n":                                    "line 3: for: want a duration",
		"none: true\nload: [\"http1=a:1\"]\nmax_failed_requests: 99999999999999999999\n": "line 3: max_failed_requests",
		"signal_pid: 1\nload: [\"http1=a:1\"]\nrepeat: 2\n":                              "line 3: --repeat",
	} {
		p := prove.Defaults()
		if err := prove.ReadPlan([]byte(text), &p, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want a word about %s", text, err, want)
		}
	}
	p := prove.Defaults()
	p.For = time.Minute
	cli := &prove.CommandLine{PID: os.Getpid(), Given: func(flag string) bool { return flag == "for" || flag == "signal-pid" }}
	if err := prove.ReadPlan([]byte("exec: reboot\nfor: 1s\nsettle: 1s\nload:\n- http1=a:1\n"), &p, cli); err != nil || p.For != time.Minute || p.Settle != time.Second || !strings.HasPrefix(p.Target.String(), "SIGTERM to process") {
		t.Errorf("the command line wins: %+v, %v", p, err)
	}
	p = prove.Defaults()
	if err := prove.ReadPlan([]byte("none: true\nload:\n- http1=a:1,rate=5\n- websocket=a:2/ws\nfor: 10s\nmax_cut_streams: 3\nreconnect: naive\n"), &p, nil); err != nil || len(p.Loads) != 2 || p.For != 10*time.Second || p.Limits.CutStreams != 3 || p.Reconnect != load.Naive {
		t.Errorf("%+v, %v", p, err)
	}
}

// The command: exit statuses, files, and the document in its other forms.
func TestCommand(t *testing.T) {
	pod := newPod(t, false, "drain")
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	ctl := func(args ...string) (int, string, string) {
		cmd := exec.Command(benchtest.Path("lastcallctl"), args...)
		var out, fault bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &fault
		_ = cmd.Run()
		return cmd.ProcessState.ExitCode(), out.String(), fault.String()
	}
	quick := []string{"prove", "--warmup", "100ms", "--baseline", "300ms", "--for", "500ms", "--settle", "0s"}
	status, out, fault := ctl(append(quick, "--load", "http1="+pod.http, "--none", "--json", at("j"), "--junit", at("x"), "--html", at("h"))...)
	if status != 0 || !strings.Contains(out, "PROVEN") || !strings.Contains(out, "no client saw anything go wrong") {
		t.Errorf("status %d, %s %s", status, out, fault)
	}
	b, err := os.ReadFile(at("j"))
	if err != nil {
		t.Fatal(err)
	}
	benchtest.Conforms(t, proof.JSONSchema, b)
	benchtest.Contradicts(t, proof.JSONSchema, bytes.Replace(b, []byte(`"proven"`), []byte(`"perhaps"`), 1))
	benchtest.Contradicts(t, proof.JSONSchema, bytes.Replace(b, []byte(`"verdict"`), []byte(`"other"`), 1))
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	var doc proof.Proof
	if err := dec.Decode(&doc); err != nil || doc.Schema != "lastcall.prove/v1" || doc.Verdict != "proven" {
		t.Errorf("document: %v %+v", err, doc)
	}
	if x, err := os.ReadFile(at("x")); err != nil || xml.Unmarshal(x, new(struct{ XMLName xml.Name })) != nil || !bytes.Contains(x, []byte(`<testsuites tests="2" failures="0" errors="0">`)) {
		t.Errorf("JUnit: %v %s", err, x)
	}
	if h, err := os.ReadFile(at("h")); err != nil || !bytes.Contains(h, []byte("</svg>")) || bytes.Contains(h, []byte("%!")) || bytes.Contains(h, []byte("<script")) || bytes.Contains(h, []byte("http://")) && bytes.Contains(h, []byte("src=")) {
		t.Errorf("page: %v", err)
	}
	for _, form := range []string{"text", "markdown", "junit", "html", "schema"} {
		if status, out, fault := ctl("report", at("j"), "-o", form); status != 0 || out == "" || strings.Contains(out, "%!") {
			t.Errorf("report -o %s: %d %s", form, status, fault)
		}
	}
	for _, tt := range []struct {
		status int
		says   string
		args   []string
	}{
		{2, "--load", []string{"prove", "--none"}},
		{2, "--signal-pid", []string{"prove", "--load", "http1=" + pod.http}},
		{2, "kind", []string{"prove", "--none", "--load", "cheese=x:1"}},
		{2, "--json", append(quick, "--none", "--load", "http1="+pod.http, "--json", "/nowhere/x")},
		{2, "unknown flag", []string{"prove", "--frobnicate"}},
		{2, "line 1", []string{"prove", "--plan", at("x")}},
		{3, "nobody there", append(quick, "--none", "--load", "http1="+benchtest.Free(t))},
		{2, "schema", []string{"report", "-o", "text", at("other")}},
	} {
		if err := os.WriteFile(at("other"), []byte(`{"schema":"x"}`), 0o600); err != nil {
			t.Fatal(err)
		}
		if status, _, fault := ctl(tt.args...); status != tt.status || !strings.Contains(fault, tt.says) {
			t.Errorf("%v: status %d, %q; want %d and a word about %s", tt.args, status, fault, tt.status, tt.says)
		}
	}
	if _, err := os.Stat("/dev/full"); err == nil {
		if status, out, fault := ctl(append(quick, "--none", "--load", "http1="+pod.http, "--json", "/dev/full")...); status != 3 || !strings.Contains(fault, "no space left") || !strings.Contains(out, "PROVEN") {
			t.Errorf("a full disk: status %d, %s %s", status, out, fault)
		}
	}
}
