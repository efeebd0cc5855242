package websocket_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lastcall-proxy/lastcall/proxy/observe"
	"github.com/lastcall-proxy/lastcall/proxy/observe/observetest"
	"github.com/lastcall-proxy/lastcall/proxy/observe/websocket"
)

func newObs(s observe.Sink) observe.Observer { return websocket.New(s, s.Begin(observe.WebSocket)) }

const (
	hi     = "\x81\x02hi"
	ping   = "\x89\x00"
	closes = "\x88\x02\x03\xf4" // 1012, to the client
)

func TestFrames(t *testing.T) {
	got := observetest.Splits(t, newObs, []observetest.Step{
		observetest.App(hi + "\x01\x01a" + ping + "\x80\x01b\xc1\x7e\x00\x03abc"), observetest.Client("\x82\x83abcdxyz\x88\x82abcd\x62\x8a"), observetest.App("\x88\x02\x03\xe8"),
	})
	n := 0
	for _, e := range got.Events {
		if e == "s1 message app" {
			n++
		}
	}
	if n != 3 {
		t.Errorf("messages of the app: got %d, want 3; events %q", n, got.Events)
	}
	if want := "s1 done 0 by client code 1000"; !slices.Contains(got.Events, want) {
		t.Errorf("events: got %q, want one to be %q", got.Events, want)
	}
}

// What follows a Close means nothing, but it is passed on, and the stream's count ends with the last Close.
func TestBehindTheClose(t *testing.T) {
	var o *websocket.Observer
	keep := func(s observe.Sink) observe.Observer {
		o = websocket.New(s, s.Begin(observe.WebSocket))
		return o
	}
	got := observetest.Splits(t, keep, []observetest.Step{observetest.App("\x88\x02\x03\xe9\x8a\x00\x83"), observetest.Client("\x88\x80abcdbehind")})
	want := []string{"s1 begin 4", "s1 state 2 2", "farewell own=false", "s1 done 0 by app code 1001"}
	if diff := cmp.Diff(want, got.Events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if got.Out != [2]string{"\x88\x80abcdbehind", "\x88\x02\x03\xe9\x8a\x00\x83"} {
		t.Errorf("what left differs from what came: %q", got.Out)
	}
	if n := got.Bytes["s1 client"]; n != 6 {
		t.Errorf("bytes of the client: got %d, want 6", n)
	}
	if by, code, ok := o.Closing(); by != observe.FromApp || code != 1001 || !ok {
		t.Errorf("closing: got %v %d %t, want app 1001 true", by, code, ok)
	}
}

// A Close that is answered by FIN alone still ends the stream as it meant; without any Close a FIN is the owner's to judge.
func TestOneClose(t *testing.T) {
	var o *websocket.Observer
	keep := func(s observe.Sink) observe.Observer {
		o = websocket.New(s, s.Begin(observe.WebSocket))
		return o
	}
	if _, _, ok := keep(&observetest.Recorder{}).(*websocket.Observer).Closing(); ok {
		t.Error("closing before any Close: got true, want false")
	}
	got := observetest.Splits(t, keep, []observetest.Step{observetest.Client("\x88\x80abcd"), observetest.EOF(observe.FromClient)})
	if want := "s1 done 0 by client code 1005"; !slices.Contains(got.Events, want) {
		t.Errorf("events: got %q, want one to be %q", got.Events, want)
	}
	got = observetest.Splits(t, newObs, []observetest.Step{observetest.Client("\x81\x80abcd"), observetest.EOF(observe.FromClient)})
	if slices.ContainsFunc(got.Events, func(e string) bool { return strings.HasPrefix(e, "s1 done") }) {
		t.Errorf("without a Close: got %q, want none to be done", got.Events)
	}
	observetest.Splits(t, keep, []observetest.Step{observetest.Client("\x88\x80abcd"), observetest.EOF(observe.FromClient)})
	if by, code, ok := o.Closing(); by != observe.FromClient || code != 1005 || !ok {
		t.Errorf("closing: got %v %d %t, want client 1005 true", by, code, ok)
	}
}

func TestBadFramesLoseTrack(t *testing.T) {
	for name, frame := range map[string]string{"reserved opcode": "\x83\x00", "long ping": "\x89\x7e\x01\x00", "fragmented close": "\x08\x00"} {
		t.Run(name, func(t *testing.T) {
			got := observetest.Splits(t, newObs, []observetest.Step{observetest.App(hi + frame + hi)})
			if !slices.Contains(got.Events, "lost "+websocket.LostFrame) || got.Out[1] != hi+frame+hi {
				t.Errorf("got %q and events %q, want the bytes as they came and a lost track", got.Out[1], got.Events)
			}
		})
	}
}

func TestPoliteEnd(t *testing.T) {
	end := observetest.Tell(observe.OrderEnd)
	tests := []struct {
		name     string
		steps    []observetest.Step
		toClient string
		ended    bool
	}{
		{"at rest", []observetest.Step{observetest.App(hi), end, observetest.App(hi), observetest.Client("\x88\x80abcd")}, hi + closes, true},
		{"inside a frame", []observetest.Step{observetest.App(hi[:3]), end, observetest.App(hi[3:] + hi)}, hi + closes, true},
		{"between fragments", []observetest.Step{observetest.App("\x01\x01a"), end, observetest.App("\x80\x01b")}, "\x01\x01a" + closes, true},
		{"a Close on its way", []observetest.Step{observetest.App("\x88\x02\x03"), end, observetest.App("\xe8")}, "\x88\x02\x03\xe8", true},
		{"a frame that never ends", []observetest.Step{observetest.App(hi[:3]), end}, hi[:3], false},
		{"told twice", []observetest.Step{end, end, observetest.App(hi)}, closes, true},
		{"the app closed before", []observetest.Step{observetest.App("\x88\x00"), end}, "\x88\x00", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for size := range 5 {
				got := observetest.Run(t, newObs, tt.steps, size)
				if got.Out[1] != tt.toClient {
					t.Errorf("to the client: got %q, want %q", got.Out[1], tt.toClient)
				}
				if f := got.Out[0]; len(f) != 8 || f[:2] != "\x88\x82" || f[2]^f[6] != 0x03 || f[3]^f[7] != 0xe9 {
					t.Errorf("to the app: got %q, want one masked Close 1001", f)
				}
				if done := slices.ContainsFunc(got.Events, func(e string) bool { return strings.HasPrefix(e, "s1 done 2") }); done != tt.ended {
					t.Errorf("ended: got %t, want %t; events %q", done, tt.ended, got.Events)
				}
			}
		})
	}
}

// walk is a second reading of RFC 6455 section 5.2, to check ours by: it gives the places at which a whole frame ended, up
// to the first Close, which it tells apart, or to the first frame that is not allowed.
func walk(b string) (ends []int, closed int) {
	ends = []int{0}
	for at := 0; ; {
		f := b[at:]
		if len(f) < 2 {
			return ends, 0
		}
		head, size := 2, uint64(f[1]&0x7f)
		if more := map[uint64]int{126: 2, 127: 8}[size]; more > 0 {
			if len(f) < 2+more {
				return ends, 0
			}
			size = 0
			for _, c := range []byte(f[2 : 2+more]) {
				size = size<<8 | uint64(c)
			}
			head += more
		}
		if f[1]&0x80 != 0 {
			head += 4
		}
		op := f[0] & 0x0f
		control := op >= 8 && (op > 10 || f[0]&0x80 == 0 || size > 125)
		if len(f) < head || op > 2 && op < 8 || control || size>>63 != 0 || uint64(len(f)-head) < size {
			return ends, 0
		}
		at += head + int(size)
		if op == 8 {
			return ends, at
		}
		ends = append(ends, at)
	}
}

func FuzzWebSocket(f *testing.F) {
	f.Add([]byte("\x82\x83abcdxyz\x88\x82abcd\x62\x8a"), []byte(hi+ping+"\x88\x02\x03\xe8"), uint8(1))
	f.Add([]byte("\x83\x00"), []byte("\xc1\x7f\x00\x00\x00\x00\x00\x00\x00\x01a"), uint8(2))
	f.Fuzz(func(t *testing.T, client, app []byte, size uint8) {
		steps := []observetest.Step{observetest.Client(string(client)), observetest.App(string(app))}
		whole := observetest.Run(t, newObs, steps, 0)
		if whole.Out != [2]string{string(client), string(app)} {
			t.Fatalf("what left differs from what came: %q", whole.Out)
		}
		piece := int(size%64) + 1
		if diff := cmp.Diff(whole, observetest.Run(t, newObs, steps, piece)); diff != "" {
			t.Fatalf("cut into pieces of %d (-whole +cut):\n%s", piece, diff)
		}
	})
}

// FuzzPoliteEnd gives the order to end somewhere in between.
func FuzzPoliteEnd(f *testing.F) {
	f.Add([]byte("\x82\x83abcdxyz"), []byte(hi+hi), uint8(1), uint8(3))
	f.Fuzz(func(t *testing.T, client, app []byte, size, half uint8) {
		piece := int(size%64) + 1
		c, a := min(len(client), int(half)), min(len(app), int(half))
		steps := []observetest.Step{
			observetest.Client(string(client[:c])), observetest.App(string(app[:a])), observetest.Tell(observe.OrderEnd),
			observetest.Client(string(client[c:])), observetest.App(string(app[a:])),
		}
		whole := observetest.Run(t, newObs, steps, 0)
		cut := observetest.Run(t, newObs, steps, piece)
		if whole.Out[1] != cut.Out[1] || len(whole.Out[0]) != len(cut.Out[0]) || !slices.Equal(whole.Events, cut.Events) || !maps.Equal(whole.Bytes, cut.Bytes) {
			t.Fatalf("ended, cut into pieces of %d: got %v, want %v", piece, cut, whole)
		}
		for dir, in := range []string{string(client), string(app)} {
			checkEnd(t, in, whole.Out[dir], []int{c, a}[dir])
		}
	})
}

// checkEnd checks that a flow left as it came, or up to a frame's end behind the order and then with one Close, ours.
func checkEnd(t *testing.T, in, out string, from int) {
	t.Helper()
	if in == out {
		return
	}
	ends, closed := walk(in)
	for _, n := range []int{4, 8} { // to the client, to the app
		at := len(out) - n
		if at >= from && at <= len(in) && out[:at] == in[:at] && out[at] == 0x88 && slices.Contains(ends, at) && (closed == 0 || at < closed) {
			return
		}
	}
	t.Fatalf("ended at %d: got %q of %q, want one Close at a frame's end", from, out, in)
}
