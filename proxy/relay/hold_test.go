package relay

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/lastcall-proxy/lastcall/proxy/observe"
)

// onLoop runs f on the link's loop and waits for it.
func (b *bench) onLoop(f func()) {
	done := make(chan struct{})
	b.loop.Do(func() { f(); close(done) })
	<-done
}

// silent fails when the connection has something to read within a tenth of a second.
func silent(t *testing.T, c *net.TCPConn, who string) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if n, err := c.Read(make([]byte, 1)); n > 0 || errors.Is(err, io.EOF) {
		t.Errorf("%s read %d bytes, %v: want silence", who, n, err)
	}
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
}

func TestHoldLosesNothing(t *testing.T) {
	b, w := newBench(t), newWatcher()
	client, app, link := b.pair(t, w)
	await(t, w.connected, "the app")
	b.onLoop(func() {
		if !link.Hold(nil) {
			t.Error("not held")
		}
		if link.Hold(nil) {
			t.Error("held twice")
		}
	})
	up, down := bytes.Repeat([]byte("up"), 32<<10), bytes.Repeat([]byte("down"), 16<<10)
	go func() { _, _ = client.Write(up); _, _ = app.Write(down); _ = app.CloseWrite() }()
	silent(t, app, "app")
	silent(t, client, "client")
	b.onLoop(link.Release)
	for who, x := range map[string]struct {
		c    *net.TCPConn
		want []byte
	}{"client": {client, down}, "app": {app, up}} {
		got := make([]byte, len(x.want))
		if _, err := io.ReadFull(x.c, got); err != nil || !bytes.Equal(got, x.want) {
			t.Errorf("%s: %v, or other bytes", who, err)
		}
	}
	if n, err := client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the app's FIN: got %d, %v", n, err)
	}
	_ = client.Close()
	await(t, w.closed, "closed")
}

// A client that gives up ends the hold: by FIN, and by a reset.
func TestClientLeavesAHold(t *testing.T) {
	for _, how := range []string{"fin", "rst", "fin behind bytes"} {
		t.Run(how, func(t *testing.T) {
			b, w := newBench(t), newWatcher()
			client, app, link := b.pair(t, w)
			await(t, w.connected, "the app")
			left := make(chan struct{})
			b.onLoop(func() { link.Hold(func() { close(left) }) })
			silent(t, client, "client")
			switch how {
			case "rst":
				_ = client.SetLinger(0)
			case "fin behind bytes":
				_, _ = client.Write([]byte("last words"))
			}
			_ = client.Close()
			await(t, left, "left")
			_ = app.SetReadDeadline(time.Now().Add(10 * time.Second))
			got, err := io.ReadAll(app)
			switch how {
			case "rst":
				if err == nil {
					t.Error("app: want a reset")
				}
				if d := <-w.reset; d != observe.FromClient {
					t.Errorf("reset by %v", d)
				}
			case "fin behind bytes":
				if string(got) != "last words" || err != nil {
					t.Errorf("app: got %q, %v", got, err)
				}
			default:
				if len(got) > 0 || err != nil {
					t.Errorf("app: got %q, %v", got, err)
				}
			}
			_ = app.Close()
			await(t, w.closed, "closed")
		})
	}
}

// An app that breaks off under a hold is found by the client only afterwards, and costs no processor meanwhile.
func TestAppLeavesAHold(t *testing.T) {
	b, w := newBench(t), newWatcher()
	client, app, link := b.pair(t, w)
	await(t, w.connected, "the app")
	b.onLoop(func() { link.Hold(func() { t.Error("the client has not left") }) })
	_ = app.SetLinger(0)
	_ = app.Close()
	silent(t, client, "client")
	b.onLoop(link.Release)
	if n, err := client.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("client: got %d, %v, want a reset", n, err)
	}
	await(t, w.closed, "closed")
	if d := <-w.reset; d != observe.FromApp {
		t.Errorf("reset by %v", d)
	}
}

// A held link can be cut.
func TestCutUnderAHold(t *testing.T) {
	b, w := newBench(t), newWatcher()
	client, _, link := b.pair(t, w)
	await(t, w.connected, "the app")
	b.onLoop(func() { link.Hold(nil); link.Kill(); link.Release() })
	_ = client.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := client.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("client: %v, want a reset", err)
	}
	await(t, w.closed, "closed")
}
