package proxy_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/lastcall-proxy/lastcall/proxy/config"
	"github.com/lastcall-proxy/lastcall/tracker"
	"github.com/lastcall-proxy/lastcall/tracker/trackertest"
)

func TestProxyProtocolInAndOut(t *testing.T) {
	const header, request = "PROXY TCP4 192.0.2.9 192.0.2.10 5000 80\r\n", "GET /x HTTP/1.1\r\nHost: h\r\n\r\n"
	tests := []struct {
		name, in, out string
		pieces        []string
		client        string // as the record and the app see it; "": the socket's own
	}{
		{"accepted, whole", "accept", "v2", []string{header + request}, "192.0.2.9:5000"},
		{"accepted, cut", "accept", "v1", []string{header[:3], header[3:20], header[20:] + request[:5], request[5:]}, "192.0.2.9:5000"},
		{"absent", "accept", "v2", []string{request}, ""},
		{"sent only", "", "v2", []string{request}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, func(c *config.Config) {
				c.Inbound[0].ProxyProtocol, c.Inbound[0].SendProxyProtocol = tt.in, tt.out
			})
			c, r := w.dial(t)
			go func() {
				for _, p := range tt.pieces {
					_, _ = io.WriteString(c, p)
					time.Sleep(5 * time.Millisecond) // so that the pieces come apart; nothing depends on it
				}
			}()
			a, err := w.app.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = a.Close() }()
			in := bufio.NewReader(a)
			h, err := proxyproto.Read(in)
			if err != nil {
				t.Fatal(err)
			}
			want := tt.client
			if want == "" {
				want = c.LocalAddr().String()
			}
			if h.SourceAddr.String() != want {
				t.Errorf("the app's header: got %v, want %s", h.SourceAddr, want)
			}
			got := make([]byte, len(request))
			if _, err := io.ReadFull(in, got); err != nil || string(got) != request {
				t.Errorf("the app got %q (%v), want %q", got, err, request)
			}
			_, _ = io.WriteString(a, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			answer(t, r)
			if rec, _, _ := w.reg.Get(1); rec.Client != want || rec.Kind != tracker.KindHTTP1 {
				t.Errorf("record: got client %s kind %v, want %s http1", rec.Client, rec.Kind, want)
			}
			_, _ = c.Close(), a.Close()
			trackertest.WaitFor(t, w.reg, trackertest.Ended(tracker.WhatConnection, 1))
		})
	}
}

func TestProxyProtocolRequired(t *testing.T) {
	w := newWorld(t, func(c *config.Config) { c.Inbound[0].ProxyProtocol = "require" })
	c, _ := w.dial(t)
	ask(t, c, "/x")
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("client: got %v, want %v", err, syscall.ECONNRESET)
	}
	trackertest.WaitFor(t, w.reg, trackertest.Ended(tracker.WhatConnection, 1))
	if rec, _, _ := w.reg.Get(1); rec.Fate != tracker.Rejected || rec.Stage != tracker.StageHandshake || !strings.Contains(rec.Reason, "PROXY") {
		t.Errorf("got %v at %v, %q; want rejected at handshake", rec.Fate, rec.Stage, rec.Reason)
	}
}

func TestIdleTimeout(t *testing.T) {
	w := newWorld(t, func(c *config.Config) { c.IdleTimeout = 50 * time.Millisecond })
	c, _ := w.dial(t)
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("got a byte, want the connection closed")
	}
	trackertest.WaitFor(t, w.reg, trackertest.Ended(tracker.WhatConnection, 1))
	trackertest.WantFate(t, w.reg, tracker.WhatConnection, tracker.KindTCP, tracker.TimedOut, tracker.ByLastcall, 1)
}

func TestConnectionLimit(t *testing.T) {
	w := newWorld(t, func(c *config.Config) { c.MaxConnections = 1 })
	first, _ := w.dial(t)
	trackertest.WaitFor(t, w.reg, func(r *tracker.Registry) bool { _, _, ok := r.Get(1); return ok })
	second, err := net.Dial("tcp", w.addr)
	if err != nil {
		t.Fatal(err)
	}
	_ = second.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := second.Read(make([]byte, 1)); err == nil {
		t.Error("got a byte, want the connection closed")
	}
	_ = first.SetLinger(0)
	_, _ = second.Close(), first.Close()
	trackertest.WaitFor(t, w.reg, trackertest.Ended(tracker.WhatConnection, 2))
	trackertest.WantFate(t, w.reg, tracker.WhatConnection, tracker.KindTCP, tracker.Rejected, tracker.ByLastcall, 1)
}

// A drain that closes the listeners takes what waits in their queues first; cancelled, it opens them again.
func TestRefuseAndServeAgain(t *testing.T) {
	w := newWorld(t)
	w.serve(t, http.HandlerFunc(hello))
	w.srv.Reject(true)
	_ = w.srv.CloseConn(1<<40, true) // asks every loop: the listeners are closed now
	if c, err := net.Dial("tcp", w.addr); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial: got %v, want %v", err, syscall.ECONNREFUSED)
		if c != nil {
			_ = c.Close()
		}
	}
	w.srv.Serve()
	_ = w.srv.CloseConn(1<<40, true)
	c, r := w.dial(t)
	ask(t, c, "/x")
	if res, body := answer(t, r); res.StatusCode != 200 || body != "hello" {
		t.Errorf("after the cancel: got %d %q, want 200 %q", res.StatusCode, body, "hello")
	}
	_ = c.Close()
	trackertest.WaitFor(t, w.reg, trackertest.Ended(tracker.WhatConnection, 1))
}

func TestForwardedHeaders(t *testing.T) {
	for _, in := range []string{"", "accept"} {
		w := newWorld(t, func(c *config.Config) { c.Inbound[0].ForwardedHeaders, c.Inbound[0].ProxyProtocol = true, in })
		c, r := w.dial(t)
		client, _, _ := strings.Cut(c.LocalAddr().String(), ":")
		text := "GET /x HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 10.0.0.1\r\n\r\n"
		want := []string{"10.0.0.1", client}
		if in != "" {
			text = "PROXY TCP6 2001:db8::7 2001:db8::1 5000 80\r\n" + text
			want[1] = "2001:db8::7"
		}
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
		a, err := w.app.Accept()
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.ReadRequest(bufio.NewReader(a))
		if err != nil {
			t.Fatal(err)
		}
		if got := req.Header["X-Forwarded-For"]; !slices.Equal(got, want) {
			t.Errorf("X-Forwarded-For: got %q, want %q", got, want)
		}
		node := client
		if in != "" {
			node = `"[2001:db8::7]"`
		}
		if got := req.Header.Get("Forwarded"); got != "for="+node+";proto=http" {
			t.Errorf("Forwarded: got %q", got)
		}
		_, _ = io.WriteString(a, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		answer(t, r)
		_, _ = c.Close(), a.Close()
		trackertest.WaitFor(t, w.reg, trackertest.Ended(tracker.WhatConnection, 1))
	}
}
