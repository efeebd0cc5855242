package load

import (
	"context"
	"net"

	"golang.org/x/net/http2"
)

// http2Client asks over one connection at a time, through x/net's ClientConn: that one does not ask again by itself.
type http2Client struct {
	spec Spec
	to   endpoint
	tr   http2.Transport   //nolint:staticcheck // net/http's ClientConn hides GOAWAY behind an untyped error
	cc   *http2.ClientConn //nolint:staticcheck // net/http's ClientConn hides GOAWAY behind an untyped error
	c    net.Conn
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
		c.tr.AllowHTTP = true               //nolint:staticcheck // net/http's ClientConn hides GOAWAY behind an untyped error
		cc, err := c.tr.NewClientConn(conn) //nolint:staticcheck // net/http's ClientConn hides GOAWAY behind an untyped error
		if err != nil {
			_ = conn.Close()
			o, wire := causeOf(err, false)
			return o, wire, conn.LocalAddr().String()
		}
		c.cc, c.c = cc, conn
	}
	local := c.c.LocalAddr().String()
	req, err := newRequest(ctx, &c.spec, c.to)
	if err != nil {
		return Protocol, err.Error(), local
	}
	res, err := c.cc.RoundTrip(req)
	if err != nil {
		o, wire := causeOf(err, false)
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
