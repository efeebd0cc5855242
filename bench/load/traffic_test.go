package load_test

import (
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lastcall-proxy/lastcall/bench/load"
)

// countingRelay passes on what comes to it and counts: there is the number of connections, and the bytes each way.
type countingRelay struct {
	addr                   string
	conns, fromUs, fromApp atomic.Uint64
	wg                     sync.WaitGroup
}

func newCountingRelay(t *testing.T, app string) *countingRelay {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &countingRelay{addr: ln.Addr().String()}
	r.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			r.conns.Add(1)
			r.wg.Go(func() { r.carry(c, app) })
		}
	})
	t.Cleanup(func() { _ = ln.Close(); r.wg.Wait() })
	return r
}

func (r *countingRelay) carry(c net.Conn, app string) {
	defer func() { _ = c.Close() }()
	a, err := net.Dial("tcp", app)
	if err != nil {
		return
	}
	defer func() { _ = a.Close() }()
	var both sync.WaitGroup
	one := func(to, from net.Conn, n *atomic.Uint64) {
		_, _ = io.Copy(to, io.TeeReader(from, counter{n}))
		_ = to.(*net.TCPConn).CloseWrite()
	}
	both.Go(func() { one(a, c, &r.fromUs) })
	both.Go(func() { one(c, a, &r.fromApp) })
	both.Wait()
}

type counter struct{ n *atomic.Uint64 }

func (c counter) Write(p []byte) (int, error) { c.n.Add(uint64(len(p))); return len(p), nil }

// The bytes and connections of an account are those that go over the wire, whatever the protocol.
func TestBytesAreTheWires(t *testing.T) {
	for i := range sorts(startApp(t)) {
		a := startApp(t)
		tt := sorts(a)[i]
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var r *countingRelay
			spec := tt.spec
			for _, addr := range []string{a.HTTPAddr, a.HTTPSAddr, a.TCPAddr, a.TLSAddr} {
				if strings.Contains(spec, addr) {
					r = newCountingRelay(t, addr)
					spec = strings.Replace(spec, addr, r.addr, 1)
				}
			}
			got := drive(t, spec, load.Never, 400*time.Millisecond, nil)
			a.Close()
			for began := time.Now(); time.Since(began) < 10*time.Second && r.fromUs.Load() != got.Connections.Bytes.Sent; {
				time.Sleep(time.Millisecond) // the last may be in the relay's socket
			}
			b := got.Connections.Bytes
			if b.Sent == 0 || b.Sent != r.fromUs.Load() || got.Connections.Opened != r.conns.Load() {
				t.Errorf("sent: the client's %+v, the wire's %d on %d connections", got.Connections, r.fromUs.Load(), r.conns.Load())
			}
			// What comes behind the client's own goodbye is not read.
			if wire := r.fromApp.Load(); b.Received == 0 || b.Received > wire || b.Received+500 < wire*9/10 {
				t.Errorf("received: the client's %d, the wire's %d", b.Received, wire)
			}
		})
	}
}
