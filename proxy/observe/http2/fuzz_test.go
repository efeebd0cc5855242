package http2_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	xhttp2 "golang.org/x/net/http2"

	"github.com/lastcall-proxy/lastcall/proxy/observe"
	"github.com/lastcall-proxy/lastcall/proxy/observe/http2"
	"github.com/lastcall-proxy/lastcall/proxy/observe/observetest"
)

// Any bytes, cut anywhere: the same reports, and without an order what leaves is what came.
func FuzzHTTP2(f *testing.F) {
	c, s := newScript(), newScript()
	_ = c.settings(xhttp2.Setting{ID: xhttp2.SettingHeaderTableSize, Val: 64}).headers(1, false, call...).data(1, true, "\x00\x00\x00\x00\x01x").headers(3, true, get...).fr.WriteRSTStream(3, 8)
	_ = s.settings().headers(1, false, ok...).data(1, false, "\x00\x00\x00\x00\x01x").headers(1, true, "grpc-status:0").fr.WriteGoAway(1, 0, nil)
	f.Add([]byte(c.take()), []byte(s.take()), 3, false)
	c, s = newScript(), newScript()
	f.Add([]byte(c.settings().headers(1, false, wsup...).data(1, false, "\x81\x80abcd").take()), []byte(s.settings().headers(1, false, ok...).data(1, false, "\x81\x00\x88\x00").take()), 7, true)
	f.Fuzz(func(t *testing.T, client, app []byte, size int, farewell bool) {
		if len(client)+len(app) > 4096 {
			return
		}
		// In the middle, so that a frame may be under way.
		half := len(client) / 2
		steps := []observetest.Step{observetest.Client(http2.Preface + string(client[:half])), observetest.App(string(app)), observetest.Client(string(client[half:]))}
		if farewell {
			steps = []observetest.Step{steps[0], observetest.Tell(observe.OrderFarewell), steps[1], steps[2], observetest.EOF(observe.FromClient), observetest.EOF(observe.FromApp)}
		}
		whole := observetest.Run(t, newObs, steps, 0)
		cut := observetest.Run(t, newObs, steps, 1+(size&0x7fffffff)%50)
		for _, e := range whole.Events {
			if strings.HasPrefix(e, "lost") { // how far into the frame that broke it is not anyone's account
				whole.Bytes, cut.Bytes = nil, nil
			}
		}
		if diff := cmp.Diff(whole, cut); diff != "" {
			t.Fatalf("cut it differs (-whole +cut):\n%s", diff)
		}
		if want := [2]string{http2.Preface + string(client), string(app)}; !farewell && whole.Out != want {
			t.Fatalf("what left is not what came")
		}
	})
}
