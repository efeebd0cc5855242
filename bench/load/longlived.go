package load

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
)

// errNumber is an answer that carries no number of ours.
var errNumber = errors.New("an answer that is no message of ours")

// numbered is a message of at least eight bytes that begins with its number.
func numbered(n uint64, size int) []byte {
	b := make([]byte, max(size, 8))
	binary.BigEndian.PutUint64(b, n)
	return b
}

func numberOf(b []byte) (uint64, error) {
	if len(b) < 8 {
		return 0, errNumber
	}
	return binary.BigEndian.Uint64(b), nil
}

// webSocket echoes binary messages.
type webSocket struct {
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
	local := ""
	tr := &http.Transport{TLSClientConfig: tlsConfig(&s, to), DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		d.SetMultipathTCP(false)
		c, err := d.DialContext(ctx, "tcp", to.now())
		if err == nil {
			local = c.LocalAddr().String()
		}
		return c, err
	}}
	c, res, err := websocket.Dial(ctx, scheme+to.addr+to.path, &websocket.DialOptions{HTTPClient: &http.Client{Transport: tr}, HTTPHeader: http.Header{"User-Agent": {"lastcall-load"}}})
	if err != nil {
		if res != nil && res.StatusCode >= 400 {
			return nil, &outcomeError{Status, fmt.Sprintf("HTTP %d", res.StatusCode), local}
		}
		o, wire := causeOf(err, false)
		return nil, &outcomeError{o, wire, local}
	}
	c.SetReadLimit(maxSize)
	w := &webSocket{c: c, spec: s, addr: local}
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
	return numberOf(b)
}

func (*webSocket) listens() bool   { return false }
func (w *webSocket) local() string { return w.addr }

func (w *webSocket) ending(err error, _ bool) (Outcome, string) {
	var c websocket.CloseError
	if errors.As(err, &c) {
		return Told, fmt.Sprintf("close %d", c.Code)
	}
	return causeOf(err, false)
}

func (w *webSocket) close() { _ = w.c.Close(websocket.StatusNormalClosure, "") }
func (w *webSocket) abort() { w.leave(); _ = w.c.CloseNow() }

// tcpEcho sends lines with a number and expects them back.
type tcpEcho struct {
	c    net.Conn
	r    *bufio.Reader
	spec Spec
	mid  bool // a part of a line had come
}

func dialTCP(ctx context.Context, s Spec, to endpoint) (session, error) {
	c, err := dial(ctx, &s, to)
	if err != nil {
		return nil, err
	}
	return &tcpEcho{c: c, r: bufio.NewReaderSize(c, 4096), spec: s}, nil
}

func (t *tcpEcho) send(n uint64) error {
	line := strconv.FormatUint(n, 10)
	if pad := t.spec.Size - len(line) - 2; pad > 0 {
		line += " " + strings.Repeat("x", pad)
	}
	_, err := io.WriteString(t.c, line+"\n")
	return err
}

func (t *tcpEcho) recv() (uint64, error) {
	line, err := t.r.ReadString('\n')
	if err != nil {
		t.mid = line != ""
		return 0, err
	}
	number, _, _ := strings.Cut(strings.TrimSpace(line), " ")
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return 0, errNumber
	}
	return n, nil
}

func (*tcpEcho) listens() bool   { return false }
func (t *tcpEcho) local() string { return t.c.LocalAddr().String() }

// ending: raw TCP has no goodbye but FIN. Where an answer is due it is a loss.
func (t *tcpEcho) ending(err error, owed bool) (Outcome, string) {
	if errors.Is(err, io.EOF) && !owed && !t.mid {
		return Told, "FIN"
	}
	return causeOf(err, t.mid)
}

func (t *tcpEcho) close() {
	if h, ok := t.c.(interface{ CloseWrite() error }); ok {
		_ = h.CloseWrite()
		_ = t.c.SetReadDeadline(time.Now().Add(time.Second)) // a server that leaves its half open does not hold us
		return
	}
	_ = t.c.Close()
}
func (t *tcpEcho) abort() { _ = t.c.Close() }

// events listens to server-sent events. Their ids are the numbers, where they are numbers.
type events struct {
	res   *http.Response
	r     *bufio.Reader
	addr  string
	id    string
	data  bool
	seen  uint64
	leave context.CancelFunc
}

func dialSSE(ctx context.Context, s Spec, to endpoint) (session, error) {
	conn, err := dial(ctx, &s, to, "http/1.1")
	if err != nil {
		return nil, err
	}
	live, leave := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(live, func() { _ = conn.Close() })
	req, err := newRequest(live, &s, to)
	if err == nil {
		req.Header.Set("Accept", "text/event-stream")
		err = req.Write(conn)
	}
	if err != nil {
		leave()
		o, wire := causeOf(err, false)
		return nil, &outcomeError{o, wire, conn.LocalAddr().String()}
	}
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetReadDeadline(deadline)
	}
	r := bufio.NewReader(conn)
	res, err := http.ReadResponse(r, req)
	if err != nil {
		leave()
		if errors.Is(err, io.ErrUnexpectedEOF) && r.Buffered() == 0 {
			err = io.EOF
		}
		o, wire := causeOf(err, false)
		return nil, &outcomeError{o, wire, conn.LocalAddr().String()}
	}
	_ = conn.SetReadDeadline(time.Time{})
	if res.StatusCode != http.StatusOK {
		leave()
		return nil, &outcomeError{Status, fmt.Sprintf("HTTP %d", res.StatusCode), conn.LocalAddr().String()}
	}
	return &events{res: res, r: bufio.NewReader(res.Body), addr: conn.LocalAddr().String(), leave: leave}, nil
}

func (*events) send(uint64) error { return nil }

func (e *events) recv() (uint64, error) {
	for {
		line, err := e.r.ReadBytes('\n')
		if err != nil {
			if len(line) > 0 || e.data {
				return 0, io.ErrUnexpectedEOF // inside an event
			}
			return 0, err
		}
		line = bytes.TrimRight(line, "\r\n")
		field, v, _ := bytes.Cut(line, []byte(":"))
		switch {
		case len(line) == 0 && e.data:
			e.data = false
			e.seen++
			if n, err := strconv.ParseUint(e.id, 10, 64); err == nil {
				return n, nil
			}
			return e.seen, nil
		case string(field) == "id":
			e.id = string(bytes.TrimSpace(v))
		case string(field) == "data":
			e.data = true
		}
	}
}

func (*events) listens() bool   { return true }
func (e *events) local() string { return e.addr }

func (e *events) ending(err error, _ bool) (Outcome, string) {
	if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return Told, "end of stream"
	}
	return causeOf(err, true)
}

func (e *events) close() { e.leave() }
func (e *events) abort() { e.leave() }

// grpcStream sends numbered messages on a two-way call and expects them back.
type grpcStream struct {
	cc      *grpc.ClientConn
	s       grpc.ClientStream
	spec    Spec
	addr    string
	watch   retryWatch
	answers uint64
	leave   context.CancelFunc
}

func dialGRPCStream(ctx context.Context, s Spec, to endpoint) (session, error) {
	g := &grpcStream{spec: s}
	cc, err := newGRPC(&s, to, &g.watch)
	if err != nil {
		return nil, err
	}
	g.cc = cc
	live, leave := context.WithCancel(context.WithoutCancel(ctx))
	g.leave = leave
	stop := context.AfterFunc(ctx, leave)
	g.s, err = cc.NewStream(live, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, to.path)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		leave()
		_ = cc.Close()
		o, wire := grpcCause(err)
		return nil, &outcomeError{o, wire, g.watch.last()}
	}
	if p, ok := peer.FromContext(g.s.Context()); ok && p.LocalAddr != nil {
		g.addr = p.LocalAddr.String()
	} else {
		g.addr = g.watch.last()
	}
	return g, nil
}

func (g *grpcStream) send(n uint64) error {
	b := g.spec.Data
	if b == nil {
		b = numbered(n, g.spec.Size)
	}
	return g.s.SendMsg(&b)
}

func (g *grpcStream) recv() (uint64, error) {
	var b []byte
	if err := g.s.RecvMsg(&b); err != nil {
		return 0, err
	}
	if g.spec.Data != nil { // somebody else's message has no number: answers are taken in their order
		g.answers++
		return g.answers - 1, nil
	}
	return numberOf(b)
}

func (*grpcStream) listens() bool   { return false }
func (g *grpcStream) local() string { return g.addr }

// ending: a status in trailers is the server's word, also UNAVAILABLE, which says that it goes.
func (g *grpcStream) ending(err error, _ bool) (Outcome, string) {
	if errors.Is(err, io.EOF) {
		return Told, "grpc-status 0"
	}
	o, wire := grpcCause(err)
	if o == GRPCStatus && strings.HasPrefix(wire, "grpc-status 14 ") && !strings.Contains(wire, "transport") {
		return Told, wire
	}
	return o, wire
}

func (g *grpcStream) close() { _ = g.s.CloseSend() }
func (g *grpcStream) abort() { g.leave(); _ = g.cc.Close() }
