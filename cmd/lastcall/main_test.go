package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestBadUsage(t *testing.T) {
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"unknown flag", []string{"run", "--nope"}, "--nope"},
		{"no inbound", []string{"run"}, "--inbound"},
		{"no app", []string{"run", "--inbound", ":1"}, "want LISTEN=APP"},
		{"bad listen", []string{"run", "--inbound", "1=127.0.0.1:2"}, "listen address"},
		{"twice", []string{"run", "--inbound", ":1=127.0.0.1:2", "--inbound", ":1=127.0.0.1:3"}, "is taken"},
		{"negative", []string{"run", "--inbound", ":1=127.0.0.1:2", "--lameduck", "-1s"}, "--lameduck"},
		{"does not fit", []string{"run", "--inbound", ":1=127.0.0.1:2", "--closing-window", "40s"}, "--closing-window"},
		{"admin in the open", []string{"run", "--inbound", ":1=127.0.0.1:2", "--admin", "0.0.0.0:4183"}, "--admin-token-file"},
		{"no token file", []string{"run", "--inbound", ":1=127.0.0.1:2", "--admin-token-file", "none"}, "--admin-token-file"},
		{"late", []string{"run", "--inbound", ":1=127.0.0.1:2", "--late", "maybe"}, "--late"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var errs bytes.Buffer
			if code := run(t.Context(), tt.args, &bytes.Buffer{}, &errs); code != exitUsage {
				t.Errorf("status: got %d, want %d", code, exitUsage)
			}
			if got := errs.String(); !strings.Contains(got, tt.want) || strings.Count(got, "\n") != 1 {
				t.Errorf("message: got %q, want one line with %q", got, tt.want)
			}
		})
	}
}
