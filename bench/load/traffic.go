package load

import (
	"net"
	"sync"
	"sync/atomic"
)

// Bytes are what went over TCP connections, the framing of TLS and of the protocol among them.
type Bytes struct {
	Sent     uint64 `json:"sent"`
	Received uint64 `json:"received"`
}

type traffic struct{ sent, received atomic.Uint64 }

func (t *traffic) now() Bytes { return Bytes{Sent: t.sent.Load(), Received: t.received.Load()} }

// books has a load's traffic, and that of each of its connections by its own address. A connection's is there until another
// has the same port, since failures are booked after it was closed: no more than there are ports.
type books struct {
	all traffic
	mu  sync.Mutex
	own map[string]*traffic
}

// of is what went over the connection with that address.
func (b *books) of(local string) Bytes {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t := b.own[local]; t != nil {
		return t.now()
	}
	return Bytes{}
}

func (b *books) count(c net.Conn) net.Conn {
	t := &traffic{}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.own == nil {
		b.own = map[string]*traffic{}
	}
	b.own[c.LocalAddr().String()] = t
	return &counted{Conn: c, all: &b.all, own: t}
}

// counted counts what its connection carries.
type counted struct {
	net.Conn
	all, own *traffic
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.all.received.Add(uint64(n))
	c.own.received.Add(uint64(n))
	return n, err
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.all.sent.Add(uint64(n))
	c.own.sent.Add(uint64(n))
	return n, err
}

// CloseWrite is a TCP connection's.
func (c *counted) CloseWrite() error {
	if h, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return net.ErrClosed
}
