package main

import (
	"os/exec"
	"strings"
	"testing"
)

const module = "github.com/lastcall-proxy/lastcall/"

// rooms says which of our own packages each may import. Imports point downwards only; a package that is not here fails
// until someone writes its line.
func rooms() map[string][]string {
	return map[string][]string{
		"tracker":                   {}, // the domain: everyone may depend on it because it depends on nothing
		"tracker/trackertest":       {"tracker"},
		"tracker/trackerpb":         {},
		"tracker/admin":             {"tracker", "tracker/trackerpb"},
		"tracker/fatelog":           {"tracker"},
		"tracker/prom":              {"tracker"},
		"proxy/config":              {},
		"proxy/intercept":           {},
		"proxy/observe":             {}, // parsers report to a Sink: no tracker, logger or metrics
		"proxy/observe/observetest": {"proxy/observe"},
		"proxy/observe/opaque":      {"proxy/observe"},
		"proxy/observe/detect":      {"proxy/observe"},
		"proxy/observe/grpc":        {},
		"proxy/observe/http2":       {"proxy/observe", "proxy/observe/grpc"},
		"proxy/observe/sse":         {},
		"proxy/observe/tlshello":    {"proxy/observe"},
		"proxy/observe/websocket":   {"proxy/observe"},
		"proxy/observe/http1":       {"proxy/observe", "proxy/observe/sse"},
		"proxy/relay":               {"proxy/observe"}, // relay and parsers meet only in observe
		"proxy/tlsterm":             {},
		"proxy/drain":               {"tracker"}, // knows tracker, not protocols
		"proxy/rehearse":            {"tracker"},
		// The server wires them; exporters stay outside: facts leave through the registry.
		"proxy": {"proxy/config", "proxy/intercept", "proxy/observe", "proxy/observe/detect", "proxy/observe/http1", "proxy/observe/http2", "proxy/observe/opaque", "proxy/observe/tlshello", "proxy/observe/websocket", "proxy/relay", "proxy/tlsterm", "tracker"},
		// Only cmd wires everything, and nobody imports it.
		"cmd/lastcall":    {"proxy", "proxy/config", "proxy/drain", "proxy/intercept", "proxy/rehearse", "tracker", "tracker/admin", "tracker/fatelog", "tracker/prom", "tracker/trackerpb"},
		"cmd/lastcallctl": {"bench/app", "bench/load", "bench/proof", "bench/prove", "bench/rehearse"},
	}
}

// benchRoom is for everything below bench: it drives binaries, ours as the peers', and can't lean on our own code.
const benchRoom = "bench/"

func TestImportsPointDownwards(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", "{{.ImportPath}}{{range .Imports}} {{.}}{{end}}", module+"...").CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	seen := make(map[string]bool)
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		pkg := strings.TrimPrefix(f[0], module)
		seen[pkg] = true
		allowed, known := rooms()[pkg]
		inBench := strings.HasPrefix(pkg, benchRoom)
		if !known && !inBench {
			t.Errorf("%s has no line in rooms: say what it may import", pkg)
			continue
		}
		for _, imp := range f[1:] {
			own, ours := strings.CutPrefix(imp, module)
			switch {
			case ours && inBench && !strings.HasPrefix(own, benchRoom) && own != "tracker/trackerpb":
				t.Errorf("%s imports %s: the proof drives the built binary", pkg, own)
			case ours && !inBench && !contains(allowed, own):
				t.Errorf("%s imports %s, which its room does not allow", pkg, own)
			case !ours && pkg == "tracker" && strings.Contains(imp, "."):
				t.Errorf("tracker imports %s: standard library only", imp)
			case strings.HasPrefix(imp, "k8s.io/client-go"):
				t.Errorf("%s imports %s: the sidecar links no Kubernetes client", pkg, imp)
			}
		}
	}
	for pkg := range rooms() {
		if !seen[pkg] {
			t.Errorf("rooms has a line for %s, which does not exist", pkg)
		}
	}
}

func contains(list []string, v string) bool {
	for _, s := range list {
		if s == v {
			return true
		}
	}
	return false
}
