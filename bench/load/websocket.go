package load

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/coder/websocket"
)

// webSocket sends binary messages and expects them back, or listens to what the server pushes.
type webSocket struct {
	ord   ordinal
	c     *websocket.Conn
	spec  Spec
	addr  string
	ctx   context.Context // of the session; its calls have no other
	leave context.CancelFunc
}

func dialWebSocket(ctx context.Context, s Spec, to endpoint) (session, error) {
	scheme := "ws://"
	if to.secure {
		scheme = "wss://"
	}
	var local atomic.Pointer[string] // a dial that was given up may still be under way
	localAddr := func() string {
		if p := local.Load(); p != nil {
			return *p
		}
		return ""
	}
	tr := &http.Transport{TLSClientConfig: tlsConfig(&s, to), DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		c, err := to.connect(ctx)
		if err == nil {
			local.Store(new(c.LocalAddr().String()))
		}
		return c, err
	}}
	c, res, err := websocket.Dial(ctx, scheme+to.addr+to.path, &websocket.DialOptions{HTTPClient: &http.Client{Transport: tr}, HTTPHeader: http.Header{"User-Agent": {"lastcall-load"}}})
	if err != nil {
		if res != nil && res.StatusCode >= 400 {
			return nil, &outcomeError{Status, fmt.Sprintf("HTTP %d", res.StatusCode), localAddr()}
		}
		o, wire := causeOf(err, false)
		return nil, &outcomeError{o, wire, localAddr()}
	}
	c.SetReadLimit(maxSize)
	w := &webSocket{c: c, spec: s, addr: localAddr()}
	w.ctx, w.leave = context.WithCancel(context.WithoutCancel(ctx))
	return w, nil
}

func (w *webSocket) send(n uint64) error {
	return w.c.Write(w.ctx, websocket.MessageBinary, numbered(n, w.spec.Size))
}

func (w *webSocket) recv() (uint64, error) {
	_, b, err := w.c.Read(w.ctx)
	if err != nil {
		return 0, err
	}
	if w.spec.Mode != ModePush {
		return numberOf(b)
	}
	n := leading(b)
	return w.ord.of(uint64(max(n, 0)), n >= 0), nil
}

func (w *webSocket) listens() bool  { return w.spec.Mode == ModePush }
func (w *webSocket) welcomed() bool { return w.listens() } // 101 has come
func (*webSocket) collects() bool   { return false }
func (w *webSocket) local() string  { return w.addr }

func (w *webSocket) ending(err error, _ bool) (Outcome, string) {
	var c websocket.CloseError
	if errors.As(err, &c) {
		if c.Code >= websocket.StatusProtocolError && c.Code <= websocket.StatusInternalError && c.Code != websocket.StatusNoStatusRcvd {
			return Status, fmt.Sprintf("close %d", c.Code) // 1002 to 1011 tell of a fault (RFC 6455 section 7.4.1)
		}
		return Told, fmt.Sprintf("close %d", c.Code)
	}
	return causeOf(err, false)
}

func (w *webSocket) close() { _ = w.c.Close(websocket.StatusNormalClosure, "") }
func (w *webSocket) abort() { w.leave(); _ = w.c.CloseNow() }
