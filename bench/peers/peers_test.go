package peers

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/lastcall-proxy/lastcall/bench/epoll"
)

// The account of CPU and memory must cover workers, not only the process that was started.
func TestAppAndProxyAreMeasured(t *testing.T) {
	if _, err := exec.LookPath("nginx"); err != nil {
		t.Skip("nginx is not installed")
	}
	dir := t.TempDir()
	app, err := Start(t.Context(), dir, App(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(app.Stop)
	p, err := Start(t.Context(), dir, Nginx(), app.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	if n := len(p.pids()); n != 2 {
		t.Fatalf("got %d processes, want master and worker", n)
	}
	s, err := epoll.Dial(t.Context(), p.Addr, "/128", 4)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	before := p.CPU()
	r, err := s.Closed(t.Context(), 100*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if used := p.CPU() - before; used < time.Duration(r.Requests)*time.Microsecond {
		t.Errorf("%v of CPU for %d requests", used, r.Requests)
	}
	if anon, resident, err := p.Memory(); err != nil || anon <= 0 || resident <= anon {
		t.Errorf("got anonymous %d, resident %d, %v", anon, resident, err)
	}
}

func TestStartSaysWhyItFailed(t *testing.T) {
	s := Spec{Name: "liar", Binary: "sh", args: func(ports) []string { return []string{"-c", "echo no such thing; exit 3"} }}
	began := time.Now()
	_, err := Start(t.Context(), t.TempDir(), s, "")
	if err == nil || !strings.Contains(err.Error(), "no such thing") {
		t.Errorf("got %v, want what the process said", err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("took %v to see that the process is gone", took)
	}
}

func TestConfigsNameTheirAddresses(t *testing.T) {
	p := ports{dir: "/d", listen: "127.0.0.1:21001", app: "127.0.0.1:21002"}
	for _, s := range []Spec{HAProxy("tcp"), HAProxy("http"), Nginx(), Envoy("tcp"), Envoy("http")} {
		t.Run(s.Name, func(t *testing.T) {
			text := s.config(p)
			for _, want := range []string{"21001", "21002"} {
				if !strings.Contains(text, want) {
					t.Errorf("no %s in\n%s", want, text)
				}
			}
		})
	}
}
