package rehearse_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
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
	"syscall"
	"testing"
	"time"

	"github.com/lastcall-proxy/lastcall/bench/benchtest"
	"github.com/lastcall-proxy/lastcall/bench/rehearse"
)

func TestMain(m *testing.M) {
	benchtest.Main(m)
}

// pod is an app with a sidecar that tells clients apart by a header.
type pod struct {
	addr, admin, telemetry string
	sidecar                *exec.Cmd
}

func newPod(t *testing.T) *pod {
	t.Helper()
	app := benchtest.Free(t)
	benchtest.Spawn(t, app, "lastcallctl", "app", "--http", app)
	p := &pod{addr: benchtest.Free(t), admin: benchtest.Free(t), telemetry: benchtest.Free(t)}
	p.sidecar = benchtest.Spawn(t, p.addr, "lastcall", "run", "--inbound", p.addr+"="+app, "--admin", p.admin, "--telemetry", p.telemetry, "--identity-header", "X-Client-Id", "--fate-log", "/dev/null", "--termination-message", "", "--lameduck", "1s", "--drain-timeout", "5s")
	benchtest.WaitFor(t, p.admin) // after the listeners
	benchtest.WaitFor(t, p.telemetry)
	return p
}

func ctl(t *testing.T, want int, args ...string) (stdout, stderr string) {
	t.Helper()
	cmd := exec.Command(benchtest.Path("lastcallctl"), args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if got := cmd.ProcessState.ExitCode(); got != want {
		t.Fatalf("%v: exit %d, want %d\n%s%s", args, got, want, out.String(), errs.String())
	}
	return out.String(), errs.String()
}

func result(t *testing.T, out string) *rehearse.Result {
	t.Helper()
	var r rehearse.Result
	d := json.NewDecoder(strings.NewReader(out))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if r.Schema != rehearse.Schema {
		t.Errorf("schema %q", r.Schema)
	}
	return &r
}

// size is how many clients of each habit there are: LASTCALL_REHEARSE=200 is the full size.
func size() int {
	if n, err := strconv.Atoi(os.Getenv("LASTCALL_REHEARSE")); err == nil {
		return n
	}
	return 30
}

func TestHabitsAreRecognised(t *testing.T) {
	for _, mode := range []struct {
		name string
		args []string
	}{
		{"refuse-new", []string{"--mode", "refuse-new", "--hold", "3s"}},
		{"polite", []string{"--mode", "polite"}},
		{"reset", []string{"--mode", "reset", "--over", "1s"}},
	} {
		t.Run(mode.name, func(t *testing.T) {
			p := newPod(t)
			all, stop := crowd(t, p, size(), 0)
			defer stop()
			out, _ := ctl(t, 0, append([]string{"rehearse", "--sidecar", p.admin, "--share", "100%", "--yes", "--watch", "4s", "-o", "json"}, mode.args...)...)
			stop()
			r := result(t, out)
			logs := map[string]*wsClient{}
			for _, c := range all {
				logs["="+c.id+" /ws"] = c
			}
			if r.Picked != len(all) || len(r.Clients) != len(all) || r.Shared || r.Partial {
				t.Errorf("picked %d of %d, clients %d, shared %v, partial %v", r.Picked, len(all), len(r.Clients), r.Shared, r.Partial)
			}
			start, err := time.Parse(time.RFC3339Nano, r.Started)
			if err != nil {
				t.Fatal(err)
			}
			wrong, tries := 0, 0
			var off []time.Duration
			for _, c := range r.Clients {
				l := logs[c.Key]
				if l == nil {
					t.Fatalf("nobody is %q", c.Key)
				}
				if c.Class != string(l.habit) {
					wrong++
					t.Logf("%s taken for %s: %d attempts", c.Key, c.Class, c.Attempts)
				}
				if l.back.IsZero() != (c.Reconnect == nil) || (c.Outcome == "returned") != (c.Reconnect != nil) {
					t.Errorf("%s: outcome %s, its own log says %v", c.Key, c.Outcome, l.back)
					continue
				}
				if d := c.Attempts - len(l.attempts); d != 0 {
					tries++
				}
				if c.Reconnect != nil {
					taken := start.Add(time.Duration(c.TakenAt * 1e9))
					back := taken.Add(time.Duration(*c.Reconnect * 1e6))
					off = append(off, back.Sub(l.back).Abs())
				}
			}
			// Served at the first try, a client shows one delay only, and a busy machine's own queue adds to it.
			if most := map[string]int{"polite": len(all) / 10, "reset": len(all) / 10}[mode.name]; wrong > most {
				t.Errorf("%d of %d clients are taken for what they are not", wrong, len(all))
			}
			if r.Unseen > 0 {
				t.Logf("%d events were missed: attempts are counted too low", r.Unseen)
			} else if tries > 0 {
				t.Errorf("%d clients have counted their attempts otherwise", tries)
			}
			if slices.Sort(off); len(off) > 0 {
				t.Logf("times differ from the clients' logs by %v at the median, %v at most", off[len(off)/2], off[len(off)-1])
				most := off[len(off)*9/10]
				if os.Getenv("LASTCALL_REHEARSE") != "" { // nothing else runs then
					most = off[len(off)-1]
				}
				if most > 50*time.Millisecond {
					t.Errorf("times differ by %v from the clients' own", most)
				}
			}
			bunch := map[string]float64{}
			for _, g := range r.Classes {
				t.Logf("%s: %d clients, peak %d, bunching %.1f, back p50 %.0f p99 %.0f ms, tries %.1f", g.Class, g.Clients, g.Peak, g.Bunching, g.Reconnect.P50, g.Reconnect.P99, g.Attempts)
				bunch[g.Class] = g.Bunching
			}
			if mode.name != "reset" && bunch["naive"] < 1.5*bunch["backoff"] {
				t.Errorf("bunching: naive %.1f, backoff %.1f: not separated", bunch["naive"], bunch["backoff"])
			}
			want := []string{fmt.Sprintf(`lastcall_reconnects_total{outcome="returned"} %d`, 2*size()), fmt.Sprintf(`lastcall_reconnects_total{outcome="never"} %d`, size()), "lastcall_reconnect_last_rehearsed_timestamp_seconds "}
			metrics := get(t, "http://"+p.telemetry+"/metrics")
			for _, w := range want {
				if !strings.Contains(metrics, w) {
					t.Errorf("metrics lack %q", w)
				}
			}
		})
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	c := http.Client{Timeout: 5 * time.Second}
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Of clients that ask with a deadline and clients that don't, only the former notice a silence.
func TestSilenceIsNoticedByThoseWhoAsk(t *testing.T) {
	p := newPod(t)
	all, stop := crowd(t, p, 6, 400*time.Millisecond)
	defer stop()
	out, _ := ctl(t, 0, "rehearse", "--sidecar", p.admin, "--share", "100%", "--yes", "--mode", "half-open", "--hold", "3s", "--watch", "2s", "-o", "json")
	stop()
	r := result(t, out)
	logs := map[string]*wsClient{}
	for _, c := range all {
		logs["="+c.id+" /ws"] = c
	}
	for _, c := range r.Clients {
		l := logs[c.Key]
		want := "stayed"
		switch {
		case l.ping > 0 && l.habit == never:
			want = "never"
		case l.ping > 0:
			want = "returned"
		}
		if c.Outcome != want {
			t.Errorf("%s (asks every %v): %s, want %s", c.Key, l.ping, c.Outcome, want)
		}
		if l.ping > 0 && (c.Notice == nil || *c.Notice > 1500) {
			t.Errorf("%s noticed after %v ms, its deadline is %v", c.Key, c.Notice, l.ping)
		}
	}
}

// An interrupt in the middle undoes what was done, and says that it tells half the story.
func TestInterruptUndoes(t *testing.T) {
	for _, mode := range []string{"half-open", "refuse-new"} {
		t.Run(mode, func(t *testing.T) {
			p := newPod(t)
			_, stop := crowd(t, p, 2, 0)
			defer stop()
			doc := filepath.Join(t.TempDir(), "r.json")
			cmd := exec.Command(benchtest.Path("lastcallctl"), "rehearse", "--sidecar", p.admin, "--share", "50%", "--yes", "--mode", mode, "--hold", "60s", "--json", doc)
			var errs bytes.Buffer
			cmd.Stderr = &errs
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			state := func() string { return get(t, "http://"+p.admin+"/v1/rehearsal") }
			for began := time.Now(); !strings.Contains(state(), `"held":3`) && !strings.Contains(state(), `"refusing":true`); time.Sleep(20 * time.Millisecond) {
				if time.Since(began) > 10*time.Second {
					t.Fatal("it has not begun")
				}
			}
			if _, e := ctl(t, 3, "rehearse", "--sidecar", p.admin, "--share", "50%", "--yes"); !strings.Contains(e, "another rehearsal") {
				t.Errorf("a second rehearsal: %s", e)
			}
			if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); code != 3 {
				t.Errorf("exit %d, want 3: %s", code, errs.String())
			}
			if s := state(); !strings.Contains(s, `"held":0`) || !strings.Contains(s, `"refusing":false`) || !strings.Contains(s, `"status":"cancelled"`) {
				t.Errorf("not undone: %s", s)
			}
			b, err := os.ReadFile(doc)
			if err != nil {
				t.Fatal(err)
			}
			if r := result(t, string(b)); !r.Partial || r.Verdict != "none" || r.All.Outcomes["not_watched"] == 0 && r.All.Outcomes["returned"] == 0 {
				t.Errorf("the document says partial %v, %s, %v", r.Partial, r.Verdict, r.All.Outcomes)
			}
			c := &wsClient{id: "after", addr: p.addr}
			conn, _, err := c.dial(t.Context())
			if err != nil {
				t.Fatalf("a new client afterwards: %v", err)
			}
			_ = conn.CloseNow()
		})
	}
}

// A drain ends a rehearsal and is not held up by it; while one runs, none begins.
func TestDrainComesFirst(t *testing.T) {
	p := newPod(t)
	_, stop := crowd(t, p, 1, 0)
	defer stop()
	cmd := exec.Command(benchtest.Path("lastcallctl"), "rehearse", "--sidecar", p.admin, "--share", "100%", "--yes", "--mode", "half-open", "--hold", "60s")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); !strings.Contains(get(t, "http://"+p.admin+"/v1/rehearsal"), `"held":3`); time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > 10*time.Second {
			t.Fatal("it has not begun")
		}
	}
	resp, err := (&http.Client{Timeout: 5 * time.Second}).Post("http://"+p.admin+"/v1/drain", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if _, e := ctl(t, 3, "rehearse", "--sidecar", p.admin, "--share", "100%", "--yes"); !strings.Contains(e, "a drain is under way") {
		t.Errorf("a rehearsal while draining: %s", e)
	}
	for began := time.Now(); !strings.Contains(get(t, "http://"+p.admin+"/v1/rehearsal"), `"reason":"a drain began"`); time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > 5*time.Second {
			t.Fatalf("the rehearsal goes on: %s", get(t, "http://"+p.admin+"/v1/rehearsal"))
		}
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	_ = cmd.Wait()
}

func TestBadUsage(t *testing.T) {
	p := newPod(t)
	for _, tt := range []struct {
		want int
		say  string
		args []string
	}{
		{2, "--sidecar", nil},
		{2, "--share", []string{"--share", "0%"}},
		{2, "--share", []string{"--share", "many"}},
		{2, "--yes", []string{"--share", "11%"}},
		{2, "--yes", []string{"--mode", "refuse-new", "--hold", "1s"}},
		{2, "--mode", []string{"--mode", "rude"}},
		{2, "--hold", []string{"--mode", "half-open"}},
		{2, "--hold", []string{"--hold", "1s"}},
		{2, "--kind", []string{"--kind", "smtp"}},
		{2, "--kind", []string{"--mode", "goaway", "--kind", "websocket"}},
		{2, "--identity", []string{"--identity", "face"}},
		{2, "--watch", []string{"--watch", "0s"}},
		{2, "--json", []string{"--json", "/nowhere/r.json"}},
		{3, "no open stream", nil},
		{3, "refused", nil},
	} {
		args := append([]string{"rehearse", "--sidecar", p.admin}, tt.args...)
		switch tt.say {
		case "--sidecar":
			args = []string{"rehearse"}
		case "refused":
			args = []string{"rehearse", "--sidecar", benchtest.Free(t)}
		}
		if _, e := ctl(t, tt.want, args...); !strings.Contains(e, tt.say) || strings.Count(e, "\n") != 1 {
			t.Errorf("%v: %q, want one line with %q", tt.args, e, tt.say)
		}
	}
}

// After a GOAWAY the old stream runs on, and what a client asks for next it asks for elsewhere.
func TestGoAwayMovesWhatIsNew(t *testing.T) {
	p := newPod(t)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	stop := sync.OnceFunc(func() { cancel(); wg.Wait() })
	defer stop()
	const each = 4
	var whole sync.Map // by client: its long answer goes on
	for i := range each {
		for _, h := range []string{"busy", "quiet"} {
			id := fmt.Sprintf("%s-%d", h, i)
			tr := &http.Transport{Proxy: nil, Protocols: new(http.Protocols)}
			tr.Protocols.SetUnencryptedHTTP2(true)
			t.Cleanup(tr.CloseIdleConnections)
			c := &http.Client{Transport: tr}
			ask := func(path string) (*http.Response, error) {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.addr+path, nil)
				if err != nil {
					return nil, err
				}
				req.Header.Set("X-Client-Id", id)
				return c.Do(req)
			}
			long, err := ask("/events?every=50ms")
			if err != nil {
				t.Fatal(err)
			}
			wg.Go(func() {
				defer func() { _ = long.Body.Close() }()
				b := make([]byte, 4096)
				for {
					if _, err := long.Body.Read(b); err != nil {
						whole.Store(id, ctx.Err() != nil)
						return
					}
				}
			})
			if h == "busy" {
				wg.Go(func() {
					for ctx.Err() == nil {
						resp, err := ask("/hello")
						if err != nil {
							if ctx.Err() == nil {
								t.Errorf("%s: %v", id, err)
							}
							return
						}
						_, _ = io.Copy(io.Discard, resp.Body)
						_ = resp.Body.Close()
						time.Sleep(20 * time.Millisecond)
					}
				})
			}
		}
	}
	time.Sleep(300 * time.Millisecond)
	out, _ := ctl(t, 0, "rehearse", "--sidecar", p.admin, "--share", "100%", "--yes", "--mode", "goaway", "--kind", "http2,grpc", "--watch", "3s", "-o", "json")
	stop()
	r := result(t, out)
	if len(r.Clients) != 2*each {
		t.Errorf("clients: got %d, want %d: %s", len(r.Clients), 2*each, out)
	}
	for _, c := range r.Clients {
		want := "stayed"
		if strings.HasPrefix(c.Key, "=busy") {
			want = "returned"
		}
		if c.Outcome != want {
			t.Errorf("%s: %s, want %s", c.Key, c.Outcome, want)
		}
	}
	whole.Range(func(id, ok any) bool {
		if ok != true {
			t.Errorf("%v: its long answer was broken off", id)
		}
		return true
	})
}

// A sidecar that dies under a rehearsal, and a disk that is full at its end, are said; what is known is told all the same.
func TestSidecarDiesAndDiskIsFull(t *testing.T) {
	p := newPod(t)
	_, stop := crowd(t, p, 1, 0)
	defer stop()
	dir := t.TempDir()
	doc, page, junit := filepath.Join(dir, "j"), filepath.Join(dir, "h"), filepath.Join(dir, "x")
	ctl(t, 0, "rehearse", "--sidecar", p.admin, "--share", "34%", "--yes", "--watch", "500ms", "--json", doc, "--html", page, "--junit", junit)
	b, err := os.ReadFile(doc)
	if err != nil {
		t.Fatal(err)
	}
	benchtest.Conforms(t, rehearse.JSONSchema, b)
	benchtest.Contradicts(t, rehearse.JSONSchema, bytes.Replace(b, []byte(`"met"`), []byte(`"perhaps"`), 1))
	for form, want := range map[string]string{"text": "polite", "markdown": "## Rehearsal", "junit": `failures="0"`, "html": "<h2>Clients</h2>", "schema": "$defs"} {
		if out, _ := ctl(t, 0, "report", doc, "-o", form); !strings.Contains(out, want) || strings.Contains(out, "%!") {
			t.Errorf("report -o %s: %.300s", form, out)
		}
	}
	for _, path := range []string{page, junit} {
		if b, err := os.ReadFile(path); err != nil || len(b) < 100 {
			t.Errorf("%s: %v, %q", path, err, b)
		}
	}
	if out, e := ctl(t, 3, "rehearse", "--sidecar", p.admin, "--share", "34%", "--yes", "--watch", "500ms", "--json", "/dev/full"); !strings.Contains(e, "--json") || !strings.Contains(out, "polite") {
		t.Errorf("a full disk: %q, %q", out, e)
	}
	cmd := exec.Command(benchtest.Path("lastcallctl"), "rehearse", "--sidecar", p.admin, "--share", "60%", "--yes", "--mode", "half-open", "--hold", "60s")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); !strings.Contains(get(t, "http://"+p.admin+"/v1/rehearsal"), `"mode":"half-open"`); time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > 10*time.Second {
			t.Fatal("it has not begun")
		}
	}
	_ = p.sidecar.Process.Kill()
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 3 || !strings.Contains(errs.String(), "is gone") || !strings.Contains(out.String(), "PARTIAL") {
		t.Errorf("a dead sidecar: exit %d\n%s%s", code, out.String(), errs.String())
	}
}

// A client of a protocol whose server speaks first, come while new connections were refused, is served afterwards.
func TestRefusalLeavesNobodyBehind(t *testing.T) {
	p := newPod(t)
	_, stop := crowd(t, p, 1, 0)
	defer stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		ctl(t, 0, "rehearse", "--sidecar", p.admin, "--share", "34%", "--yes", "--mode", "refuse-new", "--hold", "1s", "--watch", "500ms")
	}()
	for began := time.Now(); !strings.Contains(get(t, "http://"+p.admin+"/v1/rehearsal"), `"refusing":true`); time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > 10*time.Second {
			t.Fatal("it has not begun")
		}
	}
	c, err := net.Dial("tcp", p.addr) // silent, as one that waits for a greeting
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	<-done
	if list := get(t, "http://"+p.admin+"/v1/connections"); !strings.Contains(list, c.LocalAddr().String()) || strings.Contains(list, `"stage":"connect"`) {
		t.Errorf("the app is not reached for it: %s", list)
	}
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if b, _ := io.ReadAll(c); !bytes.HasPrefix(b, []byte("HTTP/1.1 200")) {
		t.Errorf("answer: %.100q", b)
	}
}
