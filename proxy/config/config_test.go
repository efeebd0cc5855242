package config_test

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/lastcall-proxy/lastcall/proxy/config"
)

func load(t *testing.T, env map[string]string, args ...string) (*config.Config, error) {
	t.Helper()
	fs := pflag.NewFlagSet("run", pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	l := config.Bind(fs)
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	return l.Load(func(name string) string { return env[name] })
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPrecedence(t *testing.T) {
	path := file(t, "lameduck: 1s\nclosing_window: 2s\nadmin: 127.0.0.1:1\nprobe_agents: [a, b]\ninbound:\n- name: web\n  listen: :80\n  app: unix:/x\n  proxy_protocol: accept\n- :81=127.0.0.1:2\n")
	c, err := load(t, map[string]string{"LASTCALL_CLOSING_WINDOW": "3s", "LASTCALL_ADMIN": "127.0.0.1:2", "POD_NAME": "p"}, "--config", path, "--admin", "127.0.0.1:3")
	if err != nil {
		t.Fatal(err)
	}
	if c.Lameduck != time.Second || c.ClosingWindow != 3*time.Second || c.Admin != "127.0.0.1:3" || c.Pod != "p" {
		t.Errorf("got lameduck %v (file 1s), closing window %v (env 3s), admin %s (flag :3), pod %q", c.Lameduck, c.ClosingWindow, c.Admin, c.Pod)
	}
	want := []config.Listener{{Name: "web", Listen: ":80", App: "unix:/x", ProxyProtocol: "accept"}, {Name: ":81", Listen: ":81", App: "127.0.0.1:2"}}
	if diff := cmp.Diff(want, c.Inbound); diff != "" {
		t.Errorf("inbound (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"a", "b"}, c.Probes); diff != "" {
		t.Errorf("probe agents (-want +got):\n%s", diff)
	}
}

func TestDrainTimes(t *testing.T) {
	tests := []struct {
		name                    string
		args                    []string
		timeout, lame, closing_ time.Duration
	}{
		{"defaults", nil, 30 * time.Second, 5 * time.Second, 5 * time.Second},
		{"grace period", []string{"--grace-period", "60s"}, 58 * time.Second, 5 * time.Second, 5 * time.Second},
		{"short grace period", []string{"--grace-period", "3s"}, 1500 * time.Millisecond, 375 * time.Millisecond, 375 * time.Millisecond},
		{"by hand", []string{"--drain-timeout", "10s", "--lameduck", "6s"}, 10 * time.Second, 6 * time.Second, 2500 * time.Millisecond},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := load(t, nil, append(tt.args, "--inbound", ":1=127.0.0.1:2")...)
			if err != nil {
				t.Fatal(err)
			}
			if c.DrainTimeout != tt.timeout || c.Lameduck != tt.lame || c.ClosingWindow != tt.closing_ {
				t.Errorf("got %v %v %v, want %v %v %v", c.DrainTimeout, c.Lameduck, c.ClosingWindow, tt.timeout, tt.lame, tt.closing_)
			}
		})
	}
}

func TestBadInput(t *testing.T) {
	const in = "--inbound=:1=127.0.0.1:2"
	tests := []struct {
		name string
		env  map[string]string
		args []string
		file string
		want string
	}{
		{name: "nothing to serve", want: "--inbound: nothing to serve"},
		{name: "no app", args: []string{"--inbound", ":1"}, want: `--inbound ":1": want LISTEN=APP`},
		{name: "bad port", args: []string{"--inbound", ":99999=127.0.0.1:2"}, want: `listen address ":99999": port "99999"`},
		{name: "bad app", args: []string{"--inbound", ":1=app"}, want: `app "app": want host:port`},
		{name: "unknown option", args: []string{"--inbound", ":1=127.0.0.1:2,colour=red"}, want: `unknown option "colour"`},
		{name: "TLS without a key", args: []string{"--inbound", ":1=127.0.0.1:2,tls-cert=x"}, want: "want both cert and key"},
		{name: "TLS option", args: []string{"--inbound", ":1=127.0.0.1:2,tls-what=x"}, want: "option tls-what: unknown"},
		{name: "TLS to a nameless app", args: []string{"--inbound", ":1=127.0.0.1:2,app-tls-ca=x"}, want: "want server_name"},
		{name: "twice", args: []string{in, in}, want: `--inbound ":1": the address is taken by --inbound`},
		{name: "negative", args: []string{in, "--lameduck=-1s"}, want: "--lameduck -1s: must not be negative"},
		{name: "does not fit", args: []string{in, "--closing-window=40s"}, want: "do not fit into --drain-timeout 30s"},
		{name: "late", args: []string{in, "--late=maybe"}, want: `--late "maybe": want one of`},
		{name: "open admin", args: []string{in, "--admin=0.0.0.0:4183"}, want: "needs --admin-token-file"},
		{name: "no token file", args: []string{in, "--admin-token-file=none"}, want: "--admin-token-file: open none"},
		{name: "environment", args: []string{in}, env: map[string]string{"LASTCALL_LAMEDUCK": "x"}, want: `LASTCALL_LAMEDUCK="x"`},
		{name: "no file", args: []string{in, "--config=none"}, want: "--config: open none"},
		{name: "unknown key", file: "lameduck: 1s\nlame_duck: 1s\n", want: "line 2: lame_duck: unknown key"},
		{name: "flag's spelling", file: "drain-timeout: 1s\n", want: "line 1: drain-timeout: unknown key"},
		{name: "bad value", file: "a: b\nlameduck: soon\n", want: "line 1: a: unknown key"},
		{name: "bad duration", file: "\nlameduck: soon\n", want: "line 2: lameduck: "},
		{name: "not YAML", file: "a: [\n", want: "line "},
		{name: "listener's unknown key", file: "inbound:\n- listen: :1\n  ap: x\n", want: "line 3: ap: unknown key"},
		{name: "twice in file", file: "lameduck: 1s\nlameduck: 2s\n", want: "lameduck"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			args := tt.args
			if tt.file != "" {
				args = append(args, "--config", file(t, tt.file))
			}
			_, err := load(t, tt.env, args...)
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want one line with %q", err, tt.want)
			}
		})
	}
}
