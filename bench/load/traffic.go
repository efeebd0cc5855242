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
	all  traffic
	mu   sync.Mutex
	own  map[string]*traffic
	open map[*counted]struct{}
	shut bool // nothing is opened any more
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
		b.own, b.open = map[string]*traffic{}, map[*counted]struct{}{}
	}
	b.own[c.LocalAddr().String()] = t
	out := &counted{Conn: c, books: b, own: t}
	b.open[out] = struct{}{}
	if b.shut {
		_ = c.Close()
	}
	return out
}

// closeAll closes every connection, and those that are still to be opened.
func (b *books) closeAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shut = true
	for c := range b.open {
		_ = c.Conn.Close()
	}
}

// counted counts what its connection carries.
type counted struct {
	net.Conn
	books *books
	own   *traffic
}

// Close is net.Conn's.
func (c *counted) Close() error {
	c.books.mu.Lock()
	delete(c.books.open, c)
	c.books.mu.Unlock()
	return c.Conn.Close()
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.books.all.received.Add(uint64(n))
	c.own.received.Add(uint64(n))
	return n, err
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.books.all.sent.Add(uint64(n))
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
