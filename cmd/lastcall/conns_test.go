package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/lastcall-proxy/lastcall/tracker"
)

// lastcall runs a command of ours against p.
func (p *process) lastcall(ctx context.Context, args ...string) (status int, stdout, stderr string) {
	var out, fault bytes.Buffer
	status = run(ctx, append(args, "--admin", p.admin), &out, &fault)
	return status, out.String(), fault.String()
}

// The commands that ask a running sidecar: what they print of a request that hangs and of its connection, as table, JSON
// and watch, and a drain followed to its end.
func TestAskingCommands(t *testing.T) {
	app, err := startDemoApp(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer app.stop()
	p, addr := front(t, app.http.Addr().String(), "--lameduck", "300ms", "--drain-timeout", "4s", "--closing-window", "1s")
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := io.WriteString(c, "GET /never HTTP/1.1\r\nHost: shop.example\r\nUser-Agent: t\r\n\r\n"); err != nil {
		t.Fatal(err)
	}

	type event struct {
		Type   string
		Record *tracker.Record
	}
	events := make(chan event, 1000)
	pr, pw := io.Pipe()
	watched := make(chan int, 1)
	go func() {
		watched <- run(t.Context(), []string{"conns", "--watch", "-o", "json", "--admin", p.admin}, pw, io.Discard)
		_ = pw.Close()
	}()
	go func() {
		defer close(events)
		for sc := bufio.NewScanner(pr); sc.Scan(); {
			var e event
			if json.Unmarshal(sc.Bytes(), &e) == nil {
				events <- e
			}
		}
	}()
	var seen *tracker.Record
	for e := range events {
		if e.Type == "current" && e.Record.Path == "/never" {
			seen = e.Record
			break
		}
	}
	status, out, fault := p.lastcall(t.Context(), "conns", "-o", "json")
	var list struct{ Streams []tracker.Record }
	if err := json.Unmarshal([]byte(out), &list); err != nil || status != 0 || len(list.Streams) != 1 {
		t.Fatalf("conns -o json: %d %q %q %v", status, out, fault, err)
	}
	if d := cmp.Diff(&list.Streams[0], seen, cmpopts.IgnoreFields(tracker.Record{}, "Age", "Idle")); d != "" {
		t.Errorf("what the watch says of it (-list +watch):\n%s", d)
	}

	for _, tt := range []struct{ args, head, line string }{
		{"conns", "ID       KIND      CLIENT                   AGE IDLE-C IDLE-A WAITING WHAT", `^c1\.1     http1     127\.0\.0\.1:\d+ +\d+\.\ds +\d+\.\ds +\d+\.\ds app     /never$`},
		{"conns --connections", "ID       KIND      CLIENT                   AGE IDLE-C IDLE-A WAITING WHAT", `^c1       http1     127\.0\.0\.1:\d+ +\d+\.\ds +\d+\.\ds +\d+\.\ds app`},
		{"conns --kind websocket", "no streams", ""},
		{"conns --older 1h", "no streams", ""},
		{"conns --survivors", "no streams", ""},
	} {
		status, out, fault := p.lastcall(t.Context(), strings.Fields(tt.args)...)
		lines := strings.Split(out, "\n")
		if status != 0 || lines[0] != tt.head {
			t.Errorf("%s: %d %q %q", tt.args, status, out, fault)
			continue
		}
		if tt.line != "" && !regexp.MustCompile(tt.line).MatchString(lines[1]) {
			t.Errorf("%s: got %q, want %s", tt.args, lines[1], tt.line)
		}
		for _, l := range lines {
			if utf8.RuneCountInString(l) > 80 {
				t.Errorf("%s: wider than 80 columns: %q", tt.args, l)
			}
		}
	}
	for args, want := range map[string]string{"conns --kind cheese --watch": "--kind", "conns --kind cheese": "kind", "conns -o yaml": "-o", "drain --timeout -1s": "--timeout"} {
		if status, _, fault := p.lastcall(t.Context(), strings.Fields(args)...); status == 0 || !strings.Contains(fault, want) {
			t.Errorf("%s: %d %q, want a complaint about %s", args, status, fault, want)
		}
	}

	table := make(chan string, 1)
	go func() {
		_, out, _ := p.lastcall(t.Context(), "conns", "--watch")
		table <- out
	}()
	status, out, fault = p.lastcall(t.Context(), "drain", "--wait", "--timeout", "20s")
	if status != 0 || !strings.Contains(out, "lameduck") || !strings.Contains(out, "closing") || !strings.Contains(out, "done") || !strings.Contains(out, "/never") {
		t.Errorf("drain --wait: %d %q %q", status, out, fault)
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("exit: %v", err)
	}
	if status := <-watched; status != 0 {
		t.Errorf("conns --watch after the sidecar went: %d", status)
	}
	ended := false
	for e := range events {
		ended = ended || e.Type == "ended" && e.Record.ID == "c1.1" && e.Record.Fate == tracker.Cut && e.Record.By == tracker.ByLastcall
	}
	if !ended {
		t.Error("the watch did not tell the end of c1.1")
	}
	select {
	case out := <-table:
		if !strings.Contains(out, "cut by lastcall after") || !strings.Contains(out, "phase closing") || !strings.Contains(out, "the sidecar is gone") {
			t.Errorf("conns --watch: %s", out)
		}
	case <-time.After(10 * time.Second):
		t.Error("conns --watch goes on without a sidecar")
	}
}

// A client that was told to leave and begins a stream all the same is named.
func TestDisobedientClientIsNamed(t *testing.T) {
	p, addr := front(t, h2Go(t), "--lameduck", "20s", "--drain-timeout", "60s")
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	_, _ = io.WriteString(c, http2.ClientPreface)
	fr := http2.NewFramer(c, c)
	_ = fr.WriteSettings()
	var hb bytes.Buffer
	enc := hpack.NewEncoder(&hb)
	request := func(id uint32) {
		hb.Reset()
		for _, f := range [][2]string{{":method", "POST"}, {":path", "/"}, {":scheme", "http"}, {":authority", "h"}, {"user-agent", "stubborn/1"}} {
			_ = enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
		}
		_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: hb.Bytes(), EndHeaders: true}) // its body never ends
	}
	until := func(want func(http2.Frame) bool) {
		t.Helper()
		for {
			f, err := fr.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			if want(f) {
				return
			}
		}
	}
	request(1)
	until(func(f http2.Frame) bool { s, ok := f.(*http2.SettingsFrame); return ok && s.IsAck() })
	if status, _, fault := p.lastcall(t.Context(), "drain"); status != 0 {
		t.Fatal(fault)
	}
	until(func(f http2.Frame) bool { _, ok := f.(*http2.GoAwayFrame); return ok })
	if _, out, _ := p.lastcall(t.Context(), "conns"); strings.Contains(out, "told to leave") {
		t.Errorf("named although it only finishes what was open:\n%s", out)
	}
	request(3)
	_ = fr.WritePing(false, [8]byte{1}) // its answer comes when the app has seen the request
	until(func(f http2.Frame) bool { p, ok := f.(*http2.PingFrame); return ok && p.IsAck() })
	want := regexp.MustCompile(`(?m)^c1 \(127\.0\.0\.1:\d+, http2\) was told to leave \(goaway\) \d+\.\ds ago and has begun 1 of its streams since: stubborn/1$`)
	if _, out, _ := p.lastcall(t.Context(), "conns"); !want.MatchString(out) {
		t.Errorf("got:\n%s", out)
	}
}
