package websocket_test

import (
	"strings"
	"testing"

	"github.com/lastcall-proxy/lastcall/proxy/observe"
	"github.com/lastcall-proxy/lastcall/proxy/observe/observetest"
	"github.com/lastcall-proxy/lastcall/proxy/observe/websocket"
)

func frames() (client, app []byte) {
	payload := strings.Repeat("x", 300)
	return []byte("\x82\xfe\x01\x2cabcd" + payload + "\x8a\x80abcd"), []byte("\x02\x7e\x01\x2c" + payload + ping + "\x80\x02hi")
}

func TestNoAllocationPerFrame(t *testing.T) {
	o := websocket.New(observetest.Deaf{}, observetest.Deaf{})
	client, app := frames()
	if n := testing.AllocsPerRun(1000, func() {
		o.Data(observe.FromClient, client)
		o.Data(observe.FromApp, app)
	}); n != 0 {
		t.Errorf("allocations per round of frames: got %v, want 0", n)
	}
}

func BenchmarkFrames(b *testing.B) {
	o := websocket.New(observetest.Deaf{}, observetest.Deaf{})
	client, app := frames()
	b.ReportAllocs()
	b.SetBytes(int64(len(client) + len(app)))
	for b.Loop() {
		o.Data(observe.FromClient, client)
		o.Data(observe.FromApp, app)
	}
}
