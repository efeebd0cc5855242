package load

import (
	"context"
	"errors"
	"net"
	"sync/atomic"

	"golang.org/x/net/http2"
)

// http2Client asks over one connection at a time, through x/net's ClientConn: that one does not ask again by itself.
type http2Client struct {
	spec Spec
	to   endpoint
	tr   http2.Transport   //nolint:staticcheck // net/http's ClientConn hides GOAWAY behind an untyped error
	cc   *http2.ClientConn //nolint:staticcheck // net/http's ClientConn hides GOAWAY behind an untyped error
	c    *remembering
}

// remembering keeps how reading ended: ClientConn only says that it "could not be established" when its peer goes before its
// SETTINGS have come.
type remembering struct {
	net.Conn
	ended atomic.Pointer[error]
}

func (c *remembering) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		c.ended.CompareAndSwap(nil, &err)
	}
	return n, err
}

func (c *http2Client) do(ctx context.Context) (Outcome, string, string) {
	if c.cc != nil && !c.cc.CanTakeNewRequest() {
		c.drop()
	}
	if c.cc == nil {
		conn, err := dial(ctx, &c.spec, c.to, "h2")
		if err != nil {
			o, wire := causeOf(err, false)
			return o, wire, localOf(err)
		}
		c.c = &remembering{Conn: conn}
		c.tr.AllowHTTP = true              //nolint:staticcheck // net/http's ClientConn hides GOAWAY behind an untyped error
		cc, err := c.tr.NewClientConn(c.c) //nolint:staticcheck // net/http's ClientConn hides GOAWAY behind an untyped error
		if err != nil {
			_ = conn.Close()
			o, wire := causeOf(err, false)
			return o, wire, conn.LocalAddr().String()
		}
		c.cc = cc
	}
	conn := c.c
	local := conn.LocalAddr().String()
	req, err := newRequest(ctx, &c.spec, c.to)
	if err != nil {
		return Protocol, err.Error(), local
	}
	res, err := c.cc.RoundTrip(req)
	if err != nil {
		o, wire := causeOf(err, false)
		if ended := conn.ended.Load(); ended != nil && o == Protocol {
			o, wire = causeOf(*ended, false)
		}
		var stream http2.StreamError
		if conn.ended.Load() != nil || !errors.As(err, &stream) && o != StreamRefused && o != Timeout {
			c.drop() // ClientConn may go on to offer itself
		}
		return o, wire, local
	}
	o, wire := readAnswer(res)
	return o, wire, local
}

func (c *http2Client) drop() {
	if c.cc != nil {
		_ = c.cc.Close()
		c.cc, c.c = nil, nil
	}
}

func (c *http2Client) close() { c.drop() }
