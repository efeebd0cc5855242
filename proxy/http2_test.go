package proxy_test

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	xhttp2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/lastcall-proxy/lastcall/proxy/config"
	"github.com/lastcall-proxy/lastcall/tracker"
	"github.com/lastcall-proxy/lastcall/tracker/trackertest"
)

// h2peer is one end of a raw HTTP/2 connection.
type h2peer struct {
	net.Conn
	fr  *xhttp2.Framer
	enc *hpack.Encoder
	hb  bytes.Buffer
}

func newH2Peer(t *testing.T, c net.Conn, client bool) *h2peer {
	t.Helper()
	p := &h2peer{Conn: c, fr: xhttp2.NewFramer(c, c)}
	p.fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	p.enc = hpack.NewEncoder(&p.hb)
	if client {
		_, _ = io.WriteString(c, xhttp2.ClientPreface)
	} else if _, err := io.ReadFull(c, make([]byte, len(xhttp2.ClientPreface))); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *h2peer) headers(id uint32, end bool, kv ...string) {
	p.hb.Reset()
	for i := 0; i < len(kv); i += 2 {
		_ = p.enc.WriteField(hpack.HeaderField{Name: kv[i], Value: kv[i+1]})
	}
	_ = p.fr.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: id, BlockFragment: p.hb.Bytes(), EndHeaders: true, EndStream: end})
}

// until reads frames up to one that f wants.
func (p *h2peer) until(t *testing.T, f func(xhttp2.Frame) bool) {
	t.Helper()
	for {
		fr, err := p.fr.ReadFrame()
		if err != nil {
			t.Fatalf("read: %v", err)
		}
		if f(fr) {
			return
		}
	}
}

func isHeaders(id uint32) func(xhttp2.Frame) bool {
	return func(f xhttp2.Frame) bool { h, ok := f.(*xhttp2.MetaHeadersFrame); return ok && h.StreamID == id }
}

func isData(id uint32) func(xhttp2.Frame) bool {
	return func(f xhttp2.Frame) bool { h, ok := f.(*xhttp2.DataFrame); return ok && h.StreamID == id }
}

// h2pair is a client and an app with the proxy between them.
func h2pair(t *testing.T, w *world, settings ...xhttp2.Setting) (c, a *h2peer) {
	t.Helper()
	tcp, _ := w.dial(t)
	c = newH2Peer(t, tcp, true)
	_ = c.fr.WriteSettings(settings...)
	ac, err := w.app.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = ac.SetDeadline(time.Now().Add(10 * time.Second))
	t.Cleanup(func() { _ = ac.Close() })
	a = newH2Peer(t, ac, false)
	_ = a.fr.WriteSettings()
	return c, a
}

var postRequest = []string{":method", "POST", ":path", "/p", ":authority", "h", ":scheme", "http"}

// A stuck stream says whose turn it is, and which side has ended its part.
func TestStuckStreams(t *testing.T) {
	w := newWorld(t)
	c, a := h2pair(t, w, xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: 4})
	type turn struct {
		waiting tracker.WaitingOn
		half    tracker.Party
	}
	want := map[string]turn{}
	// Stream 1: the app is silent after its head.
	c.headers(1, true, postRequest...)
	a.until(t, isHeaders(1))
	a.headers(1, false, ":status", "200")
	want["c1.1"] = turn{tracker.WaitingApp, tracker.ByClient}
	// Stream 3: the client has no window for more.
	c.headers(3, true, postRequest...)
	a.until(t, isHeaders(3))
	a.headers(3, false, ":status", "200")
	_ = a.fr.WriteData(3, false, []byte("full"))
	want["c1.2"] = turn{tracker.WaitingClient, tracker.ByClient}
	// Stream 5: the client has said all, the app nothing.
	c.headers(5, true, postRequest...)
	a.until(t, isHeaders(5))
	want["c1.3"] = turn{tracker.WaitingApp, tracker.ByClient}
	// Stream 7: the app has said all, the client goes on.
	c.headers(7, false, postRequest...)
	a.until(t, isHeaders(7))
	a.headers(7, true, ":status", "200")
	want["c1.4"] = turn{tracker.WaitingClient, tracker.ByApp}
	// Stream 9: both talk.
	c.headers(9, false, postRequest...)
	a.until(t, isHeaders(9))
	a.headers(9, false, ":status", "200")
	want["c1.5"] = turn{tracker.WaitingEither, tracker.ByUnknown}
	c.until(t, isData(3))
	c.until(t, isHeaders(9))
	recs, _, err := w.reg.Query(tracker.Query{What: tracker.WhatStream, State: tracker.StateOpen, Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	if len(recs) != len(want) {
		t.Errorf("streams: got %d, want %d", len(recs), len(want))
	}
	for _, r := range recs {
		if wt := want[r.ID]; r.WaitingOn != wt.waiting || r.HalfClosed != wt.half {
			t.Errorf("%s: waiting on %s, half closed by %s; want %s, %s", r.ID, r.WaitingOn, r.HalfClosed, wt.waiting, wt.half)
		}
	}
	_ = a.fr.WritePing(false, [8]byte{7})
	c.until(t, func(f xhttp2.Frame) bool {
		p, ok := f.(*xhttp2.PingFrame)
		if ok {
			_ = c.fr.WritePing(true, p.Data)
		}
		return ok
	})
	a.until(t, func(f xhttp2.Frame) bool { p, ok := f.(*xhttp2.PingFrame); return ok && p.IsAck() })
	v, ok := w.srv.Inspect(1)
	if !ok || v.Window != (tracker.Sides[int64]{Client: 65535, App: 65531}) || v.RoundTrip[0] <= 0 || v.RoundTrip[1] >= 0 {
		t.Errorf("windows and round trips of the connection: %+v, %t", v, ok)
	}
	wantWindow := map[uint32]int64{1: 4, 2: 0, 3: 4, 5: 4}
	for n, app := range wantWindow {
		if got := v.Streams[n].Window; got != (tracker.Sides[int64]{Client: 65535, App: app}) {
			t.Errorf("windows of c1.%d: got %+v, want the app's %d", n, got, app)
		}
	}
	if _, ok := w.srv.Inspect(9); ok {
		t.Error("a connection that isn't there was inspected")
	}
	_, _ = c.Close(), a.Close()
	trackertest.WaitFor(t, w.reg, trackertest.Ended(tracker.WhatConnection, 1))
	if r, _, _ := w.reg.Get(1); r.Kind != tracker.KindHTTP2 || r.Fate != tracker.Aborted {
		t.Errorf("connection: got %s %s", r.Kind, r.Fate)
	}
}

// A connection that arrives while draining: its stream is refused, nothing of it reaches the app, and it is closed.
func TestLateHTTP2(t *testing.T) {
	w := newWorld(t)
	at := w.reg.Now()
	w.reg.BeginDrain("test", at, at+int64(time.Minute))
	w.srv.Farewell()
	w.srv.Reject(false)
	c, a := h2pair(t, w)
	c.headers(1, true, postRequest...)
	c.until(t, func(f xhttp2.Frame) bool {
		r, ok := f.(*xhttp2.RSTStreamFrame)
		return ok && r.StreamID == 1 && r.ErrCode == xhttp2.ErrCodeRefusedStream
	})
	c.until(t, func(f xhttp2.Frame) bool { g, ok := f.(*xhttp2.GoAwayFrame); return ok && g.LastStreamID == 0 })
	for {
		f, err := a.fr.ReadFrame()
		if err != nil {
			break
		}
		if _, ok := f.(*xhttp2.MetaHeadersFrame); ok {
			t.Error("the app got the late stream")
		}
	}
	_ = c.Close()
	trackertest.WaitFor(t, w.reg, trackertest.Ended(tracker.WhatConnection, 1))
	rec, _, _ := w.reg.Get(1)
	if rec.Fate != tracker.Rejected || rec.By != tracker.ByLastcall {
		t.Errorf("connection: got %s by %s, want rejected by lastcall", rec.Fate, rec.By)
	}
	w.reg.CancelDrain()
}

// Its own GOAWAY takes an idle connection home in the lameduck, as soon as the client has answered the PING.
func TestIdleHTTP2Leaves(t *testing.T) {
	w := newWorld(t, func(*config.Config) {})
	c, a := h2pair(t, w)
	c.headers(1, true, postRequest...)
	a.until(t, isHeaders(1))
	a.headers(1, true, ":status", "200")
	c.until(t, isHeaders(1))
	w.srv.Farewell()
	c.until(t, func(f xhttp2.Frame) bool {
		g, ok := f.(*xhttp2.GoAwayFrame)
		return ok && g.LastStreamID == 1<<31-1
	})
	c.until(t, func(f xhttp2.Frame) bool {
		p, ok := f.(*xhttp2.PingFrame)
		if ok {
			_ = c.fr.WritePing(true, p.Data)
		}
		return ok
	})
	c.until(t, func(f xhttp2.Frame) bool { g, ok := f.(*xhttp2.GoAwayFrame); return ok && g.LastStreamID == 1 })
	trackertest.WaitFor(t, w.reg, trackertest.Ended(tracker.WhatConnection, 1)) // although the client never closes
	if r, _, _ := w.reg.Get(1); r.Fate != tracker.Drained || r.Farewell == nil || r.Farewell.Kind != tracker.FarewellGoAway {
		t.Errorf("got %s, farewell %+v", r.Fate, r.Farewell)
	}
}
