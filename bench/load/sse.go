package load

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"
)

// events listens to server-sent events. Their ids are the numbers, where they are numbers.
type events struct {
	res   *http.Response
	r     *bufio.Reader
	addr  string
	id    string // of the event that is being read
	last  string // of the last whole event: the one to come back with
	data  bool
	seen  uint64
	leave context.CancelFunc
}

// listener is one client: with resume=true it names the last event that it has seen when it comes back (WHATWG HTML, server-sent
// events, Last-Event-ID).
type listener struct {
	spec Spec
	to   endpoint
	last *events
}

func newListener(s Spec, to endpoint) *listener { return &listener{spec: s, to: to} }

func (c *listener) dial(ctx context.Context) (session, error) {
	id := ""
	if c.spec.Resume && c.last != nil {
		id = c.last.last
	}
	e, err := dialSSE(ctx, c.spec, c.to, id)
	if err != nil {
		return nil, err
	}
	c.last = e
	return e, nil
}

func dialSSE(ctx context.Context, s Spec, to endpoint, last string) (*events, error) {
	conn, err := dial(ctx, &s, to, "http/1.1")
	if err != nil {
		return nil, err
	}
	live, leave := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(live, func() { _ = conn.Close() })
	req, err := newRequest(live, &s, to)
	if err == nil {
		req.Header.Set("Accept", "text/event-stream")
		if last != "" {
			req.Header.Set("Last-Event-ID", last)
		}
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
	if kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); kind != "text/event-stream" {
		leave()
		return nil, &outcomeError{Protocol, fmt.Sprintf("an answer of type %q, no event stream", kind), conn.LocalAddr().String()}
	}
	return &events{res: res, r: bufio.NewReader(res.Body), addr: conn.LocalAddr().String(), id: last, last: last, leave: leave}, nil
}

// next is the number of the first event after the last one seen.
func (e *events) next() (seq uint64, resumed bool) {
	n, err := strconv.ParseUint(e.last, 10, 64)
	return n + 1, err == nil
}

func (*events) send(uint64) error { return nil }

func (e *events) recv() (uint64, error) {
	for {
		line, err := readLine(e.r)
		if err != nil {
			if errors.Is(err, io.EOF) && (len(line) > 0 || e.data) {
				return 0, io.ErrUnexpectedEOF // inside an event
			}
			return 0, err
		}
		line = bytes.TrimRight(line, "\r\n")
		field, v, _ := bytes.Cut(line, []byte(":"))
		if len(line) == 0 {
			e.last = e.id
		}
		switch {
		case len(line) == 0 && e.data:
			e.data = false
			e.seen++
			if n, err := strconv.ParseUint(e.id, 10, 64); err == nil {
				return n, nil
			}
			return e.seen, nil
		case string(field) == "id" && bytes.IndexByte(v, 0) < 0: // one with NUL is to be ignored
			e.id = string(bytes.TrimSpace(v))
		case string(field) == "data":
			e.data = true
		}
	}
}

func (*events) listens() bool   { return true }
func (*events) collects() bool  { return false }
func (e *events) local() string { return e.addr }

func (e *events) ending(err error, _ bool) (Outcome, string) {
	if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return Told, "end of stream"
	}
	return causeOf(err, true)
}

func (e *events) close() { e.leave() }
func (e *events) abort() { e.leave() }
