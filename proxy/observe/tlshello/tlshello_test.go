package tlshello_test

import (
	"crypto/tls"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/lastcall-proxy/lastcall/proxy/observe"
	"github.com/lastcall-proxy/lastcall/proxy/observe/observetest"
	"github.com/lastcall-proxy/lastcall/proxy/observe/tlshello"
)

func newObs(s observe.Sink) observe.Observer { return tlshello.New(s) }

// hello is what crypto/tls sends first.
func hello(t testing.TB, cfg *tls.Config) string {
	t.Helper()
	client, server := net.Pipe()
	defer func() { _ = server.Close() }()
	go func() {
		_ = tls.Client(client, cfg).Handshake()
		_ = client.Close()
	}()
	p := make([]byte, 16<<10)
	n, err := server.Read(p)
	if err != nil {
		t.Fatal(err)
	}
	return string(p[:n])
}

func TestHello(t *testing.T) {
	whole := hello(t, &tls.Config{ServerName: "app.example", NextProtos: []string{"h2", "http/1.1"}})
	// The same message over two records (RFC 8446 section 5.1 allows it).
	n := len(whole) - 5
	split := whole[:3] + "\x00\x20" + whole[5:5+32] + whole[:3] + string([]byte{byte((n - 32) >> 8), byte(n - 32)}) + whole[5+32:]
	for name, data := range map[string]string{"one record": whole, "two records": split} {
		t.Run(name, func(t *testing.T) {
			got := observetest.Splits(t, newObs, []observetest.Step{observetest.Client(data + "opaque"), observetest.App("answer")})
			if want := `hello "app.example" "h2,http/1.1" "1.3"`; !slices.Contains(got.Events, want) {
				t.Errorf("events: got %q, want one to be %q", got.Events, want)
			}
			if got.Out != [2]string{data + "opaque", "answer"} {
				t.Errorf("what left differs from what came: %q", got.Out)
			}
		})
	}
	t.Run("without names", func(t *testing.T) {
		got := observetest.Splits(t, newObs, []observetest.Step{observetest.Client(hello(t, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}))}) //nolint:gosec // nothing is trusted: only the hello is wanted
		if want := `hello "" "" "1.2"`; !slices.Contains(got.Events, want) {
			t.Errorf("events: got %q, want one to be %q", got.Events, want)
		}
	})
	for name, data := range map[string]string{"garbage": "\x16\x03\x01\x00\x05hello", "not a hello": "\x16\x03\x01\x00\x04\x02\x00\x00\x00", "too large": "\x16\x03\x01\x00\x04\x01\xff\xff\xff" + strings.Repeat("x", 100)} {
		t.Run(name, func(t *testing.T) {
			got := observetest.Splits(t, newObs, []observetest.Step{observetest.Client(data)})
			if want := "lost " + tlshello.LostGarbage; !slices.Contains(got.Events, want) {
				t.Errorf("events: got %q, want one to be %q", got.Events, want)
			}
		})
	}
}

func FuzzTLSHello(f *testing.F) {
	f.Add([]byte(hello(f, &tls.Config{ServerName: "a.b", NextProtos: []string{"x"}})), uint8(9))
	f.Add([]byte("\x16\x03\x01\x00\x01\x01\x16\x03\x01\x00\x03\x00\x00\x00"), uint8(1))
	f.Fuzz(func(t *testing.T, p []byte, size uint8) {
		steps := []observetest.Step{observetest.Client(string(p))}
		whole := observetest.Run(t, newObs, steps, 0)
		if cut := observetest.Run(t, newObs, steps, int(size%64)+1); !slices.Equal(cut.Events, whole.Events) || cut.Out != whole.Out || whole.Out[0] != string(p) {
			t.Fatalf("cut into pieces of %d: got %v, want %v", int(size%64)+1, cut, whole)
		}
	})
}
