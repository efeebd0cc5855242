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
}

func TestLostTrack(t *testing.T) {
	tests := []struct{ name, data, reason string }{
		{"garbage", "\x16\x03\x01\x00\x05hello", tlshello.LostGarbage},
		{"not a hello", "\x16\x03\x01\x00\x04\x02\x00\x00\x00", tlshello.LostGarbage},
		{"another record type", "\x16\x03\x01\x00\x01\x01\x17\x03\x03\x00\x01x", tlshello.LostGarbage},
		{"an empty record", "\x16\x03\x01\x00\x00", tlshello.LostGarbage},
		{"too short inside", "\x16\x03\x01\x00\x06\x01\x00\x00\x02\x03\x03", tlshello.LostGarbage},
		{"too large", "\x16\x03\x01\x00\x04\x01\xff\xff\xff" + strings.Repeat("x", 100), tlshello.LostTooLarge},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := observetest.Splits(t, newObs, []observetest.Step{observetest.Client(tt.data), observetest.App("x"), observetest.Client("more")})
			want := []string{"s1 begin 1", "protocol 1", "s1 state 2 2", "lost " + tt.reason}
			if !slices.Equal(got.Events, want) {
				t.Errorf("events: got %q, want %q", got.Events, want)
			}
			if got.Out != [2]string{tt.data + "more", "x"} || got.Bytes["s1 client"] != len(tt.data)+4 {
				t.Errorf("got %q and %v, want the bytes as they came, all counted", got.Out, got.Bytes)
			}
		})
	}
}

// made is a hello of the bare fields, with its extensions given.
func made(extensions string) string {
	msg := "\x03\x03" + strings.Repeat("r", 32) + "\x00" + "\x00\x02\x13\x01" + "\x01\x00" + string([]byte{byte(len(extensions) >> 8), byte(len(extensions))}) + extensions
	n := len(msg)
	return "\x16\x03\x01" + string([]byte{byte((n + 4) >> 8), byte(n + 4), 1, 0, byte(n >> 8), byte(n)}) + msg
}

func TestVersion(t *testing.T) {
	for name, tt := range map[string]struct{ extensions, want string }{
		"legacy":         {"", "1.2"},
		"GREASE":         {"\x00\x2b\x00\x07\x06\x7a\x7a\x03\x03\x03\x04", "1.3"},
		"older only":     {"\x00\x2b\x00\x03\x02\x03\x02", "1.1"},
		"none we know":   {"\x00\x2b\x00\x03\x02\x7f\x1c", ""},
		"GREASE as kind": {"\x0a\x0a\x00\x00", "1.2"},
	} {
		t.Run(name, func(t *testing.T) {
			got := observetest.Splits(t, newObs, []observetest.Step{observetest.Client(made(tt.extensions))})
			if want := `hello "" "" "` + tt.want + `"`; !slices.Contains(got.Events, want) {
				t.Errorf("events: got %q, want one to be %q", got.Events, want)
			}
		})
	}
}

// A client that sends its hello byte by byte must not make it expensive.
func TestSlowHelloIsCheap(t *testing.T) {
	padding := "\x00\x15\x3a\x98" + strings.Repeat("\x00", 15000) // RFC 7685
	data := []byte(made(padding))
	allocs := testing.AllocsPerRun(5, func() {
		o := tlshello.New(observetest.Deaf{})
		for i := range data {
			o.Data(observe.FromClient, data[i:i+1])
		}
	})
	if allocs > 100 {
		t.Errorf("allocations for a hello of %d bytes, one at a time: got %v, want at most 100", len(data), allocs)
	}
}

func TestOrdersAreNotForTLS(t *testing.T) {
	o := newObs(&observetest.Recorder{Bytes: make(map[string]int)})
	if !o.Idle() {
		t.Error("before the first byte: got busy, want idle")
	}
	o.Data(observe.FromClient, []byte("\x16"))
	for _, order := range []observe.Order{observe.OrderFarewell, observe.OrderReject, observe.OrderServe, observe.OrderEnd} {
		if got := o.Tell(order); got != nil {
			t.Errorf("order %d: got edits %v, want none", order, got)
		}
	}
	if o.Idle() {
		t.Error("after the first byte: got idle, want busy")
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
