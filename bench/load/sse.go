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
	"sync/atomic"
	"time"
)

// events listens to server-sent events. Their ids are the numbers, where they are numbers.
type events struct {
	res     *http.Response
	r       *bufio.Reader
	addr    string
	id      string // of the event that is being read
	last    string // of the last whole event: the one to come back with
	data    bool
	named   bool // the event that is being read has an id of its own
	cr      bool // the line before ended with CR: a LF belongs to it
	ord     ordinal
	heard   atomic.Int64 // when anything came, in Unix nanoseconds
	leave   context.CancelFunc
	counted bool // its client's earlier events were not numbered by their ids
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
	id, counted := "", false
	if c.spec.Resume && c.last != nil {
		id, counted = c.last.last, c.last.ord.counted || c.last.counted
	}
	e, err := dialSSE(ctx, c.spec, c.to, id)
	if err != nil {
		return nil, err
	}
	e.counted = counted
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
	return n + 1, err == nil && !e.counted
}

func (*events) send(uint64) error { return nil }

func (e *events) recv() (uint64, error) {
	for {
		line, err := e.line()
		if err != nil {
			if errors.Is(err, io.EOF) && (len(line) > 0 || e.data) {
				return 0, io.ErrUnexpectedEOF // inside an event
			}
			return 0, err
		}
		e.heard.Store(time.Now().UnixNano())
		field, v, _ := bytes.Cut(line, []byte(":"))
		if len(line) == 0 {
			e.last = e.id
		}
		switch {
		case len(line) == 0 && e.data:
			n, err := strconv.ParseUint(e.id, 10, 64)
			named := e.named && err == nil
			e.data, e.named = false, false
			return e.ord.of(n, named), nil
		case string(field) == "id" && bytes.IndexByte(v, 0) < 0: // one with NUL is to be ignored
			e.id, e.named = string(bytes.TrimSpace(v)), true
		case string(field) == "data":
			e.data = true
		}
	}
}

// line reads up to a CR, a LF or both (WHATWG HTML, server-sent events, "Parsing an event stream").
func (e *events) line() (line []byte, err error) {
	for {
		if _, err := e.r.Peek(1); err != nil {
			return line, err
		}
		b, _ := e.r.Peek(e.r.Buffered())
		if e.cr && len(line) == 0 && b[0] == '\n' {
			e.cr = false
			_, _ = e.r.Discard(1)
			continue
		}
		i := bytes.IndexAny(b, "\r\n")
		if i >= 0 {
			line, e.cr = append(line, b[:i]...), b[i] == '\r'
			_, _ = e.r.Discard(i + 1)
			return line, nil
		}
		line, e.cr = append(line, b...), false
		_, _ = e.r.Discard(len(b))
		if len(line) > maxSize+maxNumber {
			return line, errLongLine
		}
	}
}

func (e *events) heardAt() time.Time { return time.Unix(0, e.heard.Load()) }

func (*events) welcomed() bool  { return true } // 200 and a type have come
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
