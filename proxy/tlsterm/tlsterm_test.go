package tlsterm_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lastcall-proxy/lastcall/proxy/tlsterm"
)

func TestBadSettings(t *testing.T) {
	dir := t.TempDir()
	junk := filepath.Join(dir, "junk")
	if err := os.WriteFile(junk, []byte("no PEM"), 0o600); err != nil {
		t.Fatal(err)
	}
	none := filepath.Join(dir, "none")
	tests := []struct {
		name string
		cfg  tlsterm.Config
		want string
	}{
		{"no key", tlsterm.Config{Cert: junk}, "want both cert and key"},
		{"no such file", tlsterm.Config{Cert: none, Key: junk}, "cert: open " + none},
		{"not PEM", tlsterm.Config{Cert: junk, Key: junk}, "cert " + junk + " and key " + junk},
		{"version", tlsterm.Config{Cert: junk, Key: junk, MinVersion: "1.1"}, `min_version "1.1"`},
		{"auth", tlsterm.Config{Cert: junk, Key: junk, ClientAuth: "maybe"}, `client_auth "maybe"`},
		{"auth without authority", tlsterm.Config{Cert: junk, Key: junk, ClientAuth: "require"}, "needs client_ca"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := tlsterm.NewTerminator(tt.cfg); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q in it", err, tt.want)
			}
		})
	}
	if _, err := tlsterm.NewOriginator(tlsterm.AppConfig{}); err == nil || !strings.Contains(err.Error(), "server_name") {
		t.Errorf("app without a name: got %v", err)
	}
	if _, err := tlsterm.NewOriginator(tlsterm.AppConfig{ServerName: "x", CA: junk}); err == nil || !strings.Contains(err.Error(), "ca "+junk+": no certificate in it") {
		t.Errorf("app with a bad authority: got %v", err)
	}
}
