package prove_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lastcall-proxy/lastcall/bench/benchtest"
	"github.com/lastcall-proxy/lastcall/bench/proof"
)

// The load side's own limits: 20 000 HTTP/1 requests a second beside 5000 WebSockets and 2000 gRPC streams, within 500 MB. It
// is a measurement and wants the machine for itself, so that it runs with LASTCALL_RATES set (make e2e).
func TestRates(t *testing.T) {
	if os.Getenv("LASTCALL_RATES") == "" {
		t.Skip("a measurement that wants two cores for itself: LASTCALL_RATES=1, or make e2e")
	}
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil || files.Max < 16_000 {
		t.Fatalf("7000 sessions want more descriptors than %d: %v", files.Max, err)
	}
	addr, doc := benchtest.Free(t), filepath.Join(t.TempDir(), "proof.json")
	benchtest.Spawn(t, addr, "lastcallctl", "app", "--http", addr)
	quick, _ := nginxWith(t, t.TempDir(), "keepalive_requests 100000000;", `return 200 "answered\n";`) // answers by itself: what is measured is the load side, on the same two cores
	const rate, seconds = 20_000, 10
	cmd := exec.Command(benchtest.Path("lastcallctl"), "prove", "--none", "--warmup", "6s", "--baseline", "5s", "--for", strconv.Itoa(seconds)+"s", "--settle", "0s", "--json", doc,
		"--load", "http1="+quick+",rate="+strconv.Itoa(rate)+",conns=200", "--load", "websocket=ws://"+addr+"/ws,sessions=5000,interval=10s", "--load", "grpc-stream="+addr+",sessions=2000,interval=10s")
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(doc)
	if err != nil {
		t.Fatal(err)
	}
	var p proof.Proof
	if err := json.Unmarshal(b, &p); err != nil || len(p.Runs) != 1 {
		t.Fatalf("%v, %d runs", err, len(p.Runs))
	}
	r := &p.Runs[0]
	if n := r.Baseline.Attempted; n < rate*5*99/100 {
		t.Errorf("%d attempts in the five seconds before", n)
	}
	for i := range r.Loads {
		l := &r.Loads[i]
		switch want := map[string]int{"websocket": 5000, "grpc-stream": 2000}[l.Kind]; {
		case l.Sessions == nil:
			if l.Failed != 0 || l.Succeeded < rate*(seconds+5)*99/100 || l.Latency.P50 > 100 {
				t.Errorf("%s: %d of %d, p50 %.1f ms", l.Kind, l.Succeeded, l.Attempted, l.Latency.P50)
			}
		case l.Sessions.Opened != want || l.Sessions.Ended != 0 || l.Sessions.Messages.Lost != 0:
			t.Errorf("%s: %+v", l.Kind, l.Sessions)
		}
	}
	if p.Cost.Memory <= 0 || p.Cost.Memory > 500e6/(1<<20) || p.Cost.CPU <= 0 {
		t.Errorf("the load side's own cost: %+v", p.Cost)
	}
}
