package websocket_test

import (
	"slices"
	"strings"
	"testing"

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

func FuzzWebSocket(f *testing.F) {
	f.Add([]byte("\x82\x83abcdxyz\x88\x82abcd\x62\x8a"), []byte(hi+ping+"\x88\x02\x03\xe8"), uint8(1))
	f.Add([]byte("\x83\x00"), []byte("\xc1\x7f\x00\x00\x00\x00\x00\x00\x00\x01a"), uint8(2))
	f.Fuzz(func(t *testing.T, client, app []byte, size uint8) {
		steps := []observetest.Step{observetest.Client(string(client)), observetest.App(string(app))}
		whole := observetest.Run(t, newObs, steps, 0)
		if whole.Out != [2]string{string(client), string(app)} {
			t.Fatalf("what left differs from what came: %q", whole.Out)
		}
		if cut := observetest.Run(t, newObs, steps, int(size%64)+1); !slices.Equal(cut.Events, whole.Events) || cut.Out != whole.Out {
			t.Fatalf("cut into pieces of %d: got %q, want %q", int(size%64)+1, cut.Events, whole.Events)
		}
	})
}
