package load

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// http1Client asks over one connection at a time: net/http writes the request and reads the answer, the connection is our
// own, since net/http's transport asks again by itself when a kept connection turns out to be closed.
type http1Client struct {
	spec   Spec
	to     endpoint
	kept   bool
	ledger *Ledger
	c      *http1Conn
	same   *http.Request // without a body every request is the same
}

// http1Conn is a connection that is watched while it is idle: a server that closes one that it has no use for breaks no
// request, and every client that keeps connections sees that.
type http1Conn struct {
	net.Conn
	r       *bufio.Reader
	w       *bufio.Writer   // kept: a new one for each request is most of what a request allocates
	raw     syscall.RawConn // of a connection without TLS: what has come is asked for when it matters
	watched chan error      // of the watcher, while there is one
}

func (c *http1Client) do(ctx context.Context) (Outcome, string, string) {
	c.look()
	if c.c == nil {
		conn, err := dial(ctx, &c.spec, c.to, "http/1.1")
		if err != nil {
			o, wire := causeOf(err, false)
			return o, wire, localOf(err)
		}
		c.c = &http1Conn{Conn: conn, r: bufio.NewReader(conn), w: bufio.NewWriter(conn), raw: rawOf(conn)}
	}
	conn := c.c
	local := conn.LocalAddr().String()
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	o, wire, keep := c.ask(ctx, conn)
	if !keep || !c.kept || !o.Good() && o != Status {
		c.drop()
		return o, wire, local
	}
	_ = conn.SetDeadline(time.Time{})
	conn.watch()
	return o, wire, local
}

func (c *http1Client) ask(ctx context.Context, conn *http1Conn) (o Outcome, wire string, keep bool) {
	var err error
	req := c.same
	if req == nil {
		if req, err = newRequest(ctx, &c.spec, c.to); err != nil {
			return Protocol, err.Error(), false
		}
		req.Close = !c.kept
		if c.spec.Size == 0 {
			c.same = req
		}
	}
	var to io.Writer = conn.w
	if c.spec.Over > 0 {
		to = unbuffered{conn}
	}
	werr := req.Write(to) // an answer may be there although the request could not be sent whole
	if werr == nil {
		werr = conn.w.Flush()
	}
	res, err := http.ReadResponse(conn.r, req)
	for err == nil && res.StatusCode >= 100 && res.StatusCode < 200 && res.StatusCode != http.StatusSwitchingProtocols {
		res, err = http.ReadResponse(conn.r, req)
	}
	if err != nil {
		if werr != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			err = werr
		}
		if errors.Is(err, io.ErrUnexpectedEOF) && conn.r.Buffered() == 0 {
			err = io.EOF // ReadResponse's word for nothing at all
		}
		o, wire = causeOf(err, false)
		if strings.Contains(err.Error(), "malformed HTTP") {
			o, wire = Protocol, err.Error()
		}
		return o, wire, false
	}
	if res.StatusCode == http.StatusSwitchingProtocols {
		return Protocol, "HTTP 101, and nobody asked for another protocol", false
	}
	o, wire = readAnswer(res)
	if n := conn.r.Buffered(); n > 0 && (o == OK || o == Status) {
		return Wrong, fmt.Sprintf("%d bytes that nobody asked for behind the answer", n), false
	}
	return o, wire, !res.Close && werr == nil
}

// readAnswer takes an answer's body and says what the answer was.
func readAnswer(res *http.Response) (Outcome, string) {
	_, err := io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	switch {
	case err != nil:
		return causeOf(err, true)
	case res.StatusCode >= 400:
		return Status, fmt.Sprintf("HTTP %d", res.StatusCode)
	}
	return OK, ""
}

func newRequest(ctx context.Context, s *Spec, to endpoint) (*http.Request, error) {
	scheme, method, body := "http://", http.MethodGet, io.Reader(http.NoBody)
	if to.secure {
		scheme = "https://"
	}
	if s.Size > 0 {
		method, body = http.MethodPost, bytes.NewReader(make([]byte, s.Size))
	}
	if s.Over > 0 {
		body = &slowly{ctx: ctx, start: time.Now(), over: s.Over, size: s.Size}
	}
	req, err := http.NewRequestWithContext(ctx, method, scheme+to.addr+to.path, body)
	if err != nil {
		return nil, err
	}
	if s.Over > 0 {
		req.ContentLength = int64(s.Size)
	}
	req.Header.Set("User-Agent", "lastcall-load")
	return req, nil
}

// unbuffered keeps Request.Write from gathering a slow body.
type unbuffered struct{ net.Conn }

func (u unbuffered) WriteByte(b byte) error {
	_, err := u.Write([]byte{b})
	return err
}

// slowParts is how many parts a slow body comes in at least, where it has as many bytes.
const slowParts = 50

// slowly is a body that takes its time: each byte has its moment, whatever the reader's buffer.
type slowly struct {
	ctx        context.Context //nolint:containedctx // a Reader has no other way to be told
	start      time.Time
	over       time.Duration
	size, sent int
}

func (r *slowly) Read(b []byte) (int, error) {
	if r.sent == r.size {
		return 0, io.EOF
	}
	n := min(r.size-r.sent, (r.size+slowParts-1)/slowParts, len(b))
	due := r.start.Add(time.Duration(float64(r.over) * float64(r.sent+n) / float64(r.size)))
	if !sleep(r.ctx, time.Until(due)) {
		return 0, r.ctx.Err()
	}
	clear(b[:n])
	r.sent += n
	return n, nil
}

// rawOf is the socket of a connection without TLS; nil: with TLS what comes may be TLS's own.
func rawOf(conn net.Conn) syscall.RawConn {
	c, ok := conn.(*counted)
	if !ok {
		return nil
	}
	tcp, ok := c.Conn.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}

// waiting says whether anything has come, bytes or an end.
func waiting(raw syscall.RawConn) bool {
	something := true
	var b [1]byte
	err := raw.Read(func(fd uintptr) bool {
		_, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		something = !errors.Is(err, unix.EAGAIN)
		return true
	})
	return something || err != nil
}

// watch notices a server that closes the idle connection. The reader is the watcher's until ended has it back.
func (c *http1Conn) watch() {
	if c.raw != nil {
		return // ended looks itself: a goroutine per request costs a fifth of the request
	}
	c.watched = make(chan error, 1)
	seen := c.watched
	go func() {
		_, err := c.r.Peek(1)
		seen <- err
	}()
}

// ended takes the reader back and says what came meanwhile: an end, or bytes that nobody asked for.
func (c *http1Conn) ended() (gone bool, unasked int) {
	if c.raw != nil {
		if !waiting(c.raw) {
			return false, 0
		}
		_ = c.SetReadDeadline(time.Now().Add(time.Second)) // it is there
		_, _ = c.r.Peek(1)
		return true, c.r.Buffered()
	}
	if c.watched == nil {
		return false, 0
	}
	_ = c.SetReadDeadline(time.Unix(1, 0)) // wakes the watcher
	err := <-c.watched
	c.watched = nil
	_ = c.SetReadDeadline(time.Time{})
	if err != nil && isTimeout(err) {
		return false, 0
	}
	return true, c.r.Buffered()
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}

func (c *http1Client) drop() {
	if c.c != nil {
		_ = c.c.Close()
		c.c = nil
	}
}

func (c *http1Client) close() { c.look(); c.drop() }

// look sees what has become of the idle connection.
func (c *http1Client) look() {
	if c.c == nil {
		return
	}
	gone, unasked := c.c.ended()
	if unasked > 0 {
		c.ledger.side(time.Now(), Wrong, fmt.Sprintf("%d bytes that nobody asked for on an idle connection", unasked), c.c.LocalAddr().String())
	}
	if gone {
		c.drop()
	}
}

// libraryHTTP is net/http's own client, whose retries are counted.
type libraryHTTP struct {
	spec   Spec
	to     endpoint
	ledger *Ledger
	client *http.Client
}

func newLibraryHTTP(s Spec, to endpoint, l *Ledger) *libraryHTTP {
	tr := &http.Transport{MaxConnsPerHost: 1, DisableKeepAlives: s.Kind == HTTP1New, TLSClientConfig: tlsConfig(&s, to), Protocols: new(http.Protocols), DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return to.connect(ctx)
	}}
	tr.Protocols.SetHTTP1(s.Kind != HTTP2)
	tr.Protocols.SetHTTP2(s.Kind == HTTP2)
	tr.Protocols.SetUnencryptedHTTP2(s.Kind == HTTP2)
	return &libraryHTTP{spec: s, to: to, ledger: l, client: &http.Client{Transport: tr}}
}

func (c *libraryHTTP) do(ctx context.Context) (Outcome, string, string) {
	tries, local := 0, ""
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
		if tries++; tries > 1 {
			c.ledger.side(time.Now(), RetriedLibrary, "net/http asked again", local)
		}
		local = i.Conn.LocalAddr().String()
	}})
	req, err := newRequest(ctx, &c.spec, c.to)
	if err != nil {
		return Protocol, err.Error(), ""
	}
	res, err := c.client.Do(req)
	if err != nil {
		o, wire := causeOf(err, false)
		return o, wire, local
	}
	o, wire := readAnswer(res)
	return o, wire, local
}

func (c *libraryHTTP) close() { c.client.CloseIdleConnections() }
