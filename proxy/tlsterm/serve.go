package tlsterm

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Info is what a handshake has settled.
type Info struct {
	Version  string // "TLS 1.3"
	SNI      string
	ALPN     string
	Identity string // first URI SAN, else first DNS SAN, of a verified client certificate
}

// Events tells what happens beside the plaintext.
type Events struct {
	// Handshake is called once, from a goroutine, before any plaintext reaches the pair. After a failure (see
	// Side.Failure) only SNI is known.
	Handshake func(Info, *HandshakeError)
}

// Serve takes over an accepted client socket and returns at once; handshake and records are the package's from then on.
func (t *Terminator) Serve(fd int, ev Events) (*Side, error) {
	return serve(fd, t.handshake, ev, func(_ context.Context, raw net.Conn) (*tls.Conn, error) {
		return tls.Server(raw, t.files.current.Load()), nil
	})
}

// Serve makes TLS over a connected socket to the app. Its handshake waits for the ALPN list: what the client has
// negotiated; nil: none. A channel that is closed without one gives up.
func (o *Originator) Serve(fd int, alpn <-chan []string, ev Events) (*Side, error) {
	return serve(fd, o.handshake, ev, func(ctx context.Context, raw net.Conn) (*tls.Conn, error) {
		var list []string
		select {
		case got, ok := <-alpn:
			if !ok {
				return nil, errors.New("the client's handshake failed")
			}
			list = got
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		c := o.files.current.Load().Clone()
		c.NextProtos = list
		return tls.Client(raw, c), nil
	})
}

// watched notes a FIN. crypto/tls takes one between two records for a close_notify, since some sites leave like that; but it
// is what an attacker's truncation looks like, too.
type watched struct {
	*net.TCPConn
	eof bool // read and written by whoever reads
}

// Read is io.Reader's.
func (w *watched) Read(b []byte) (int, error) {
	n, err := w.TCPConn.Read(b)
	w.eof = w.eof || errors.Is(err, io.EOF)
	return n, err
}

// conn is one TLS connection at work.
type conn struct {
	side *Side
	raw  *watched
	tls  *tls.Conn
	pair net.Conn
	open sync.WaitGroup // directions
}

func serve(fd int, timeout time.Duration, ev Events, wrap func(context.Context, net.Conn) (*tls.Conn, error)) (*Side, error) {
	raw, err := adopt(fd)
	if err != nil {
		return nil, err
	}
	tcp, ok := raw.(*net.TCPConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("tlsterm: %T is no TCP connection", raw), raw.Close())
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("tlsterm: socketpair: %w", err), raw.Close())
	}
	pair, err := adopt(fds[1])
	if err != nil {
		return nil, errors.Join(err, raw.Close(), unix.Close(fds[0]))
	}
	k := &conn{side: &Side{fd: fds[0], raw: tcp}, raw: &watched{TCPConn: tcp}, pair: pair}
	go k.run(timeout, ev, wrap)
	return k.side, nil
}

// adopt gives a descriptor to Go's poller. The descriptor is the connection's from then on, also when this fails.
func adopt(fd int) (net.Conn, error) {
	f := os.NewFile(uintptr(fd), "tls")
	c, err := net.FileConn(f)
	if cerr := f.Close(); err == nil { // FileConn has its own duplicate
		err = cerr
	}
	if err != nil {
		return nil, fmt.Errorf("tlsterm: descriptor: %w", err)
	}
	return c, nil
}

func (k *conn) run(timeout time.Duration, ev Events, wrap func(context.Context, net.Conn) (*tls.Conn, error)) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	c, err := wrap(ctx, k.raw)
	if err == nil {
		err = c.HandshakeContext(ctx)
	}
	if err != nil {
		k.side.ended(Failed)
		why := failure(err, ctx.Err() != nil)
		k.side.fail.Store(why)
		ev.Handshake(sni(c), why)
		k.close()
		return
	}
	k.tls = c
	ev.Handshake(info(c), nil)
	k.open.Add(2)
	go k.up()
	go k.down()
	k.open.Wait()
	k.close()
}

func (k *conn) close() {
	_ = k.raw.Close()
	_ = k.pair.Close()
}

// buffers are held while bytes move, not while a connection is idle: crypto/tls waits with buffers of its own, the pair is
// waited for without one.
var buffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

// up moves what the peer sends.
func (k *conn) up() {
	defer k.open.Done()
	buf := make([]byte, 4<<10)
	for {
		n, err := k.tls.Read(buf)
		if n > 0 {
			if _, werr := k.pair.Write(buf[:n]); werr != nil {
				k.discard(buf)
				return
			}
			if n == len(buf) && n < 32<<10 {
				buf = make([]byte, 32<<10) // it has much to say
			}
		}
		switch {
		case err == nil:
			continue
		case errors.Is(err, io.EOF) && !k.raw.eof:
			closeWrite(k.pair)
			return
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			k.side.ended(Truncated)
		case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ETIMEDOUT):
			k.side.ended(Reset)
		case errors.Is(err, os.ErrDeadlineExceeded): // the loop has closed its end
		default:
			k.side.ended(Failed)
		}
		k.close() // down ends by it
		return
	}
}

// discard reads on when nobody wants it any more, so that our last bytes are not overtaken by a reset. Closing has set a
// deadline.
func (k *conn) discard(buf []byte) {
	for {
		if _, err := k.tls.Read(buf); err != nil {
			return
		}
	}
}

// down moves what the loop sends.
func (k *conn) down() {
	defer k.open.Done()
	rc, err := k.pair.(*net.UnixConn).SyscallConn()
	if err != nil {
		k.side.ended(Failed)
		k.close()
		return
	}
	for {
		var n int
		var rerr error
		b, _ := buffers.Get().(*[]byte)
		if n, rerr = readReady(rc, *b); errors.Is(rerr, syscall.EAGAIN) {
			buffers.Put(b)
			if rc.Read(readable) != nil { // waits without a buffer
				return
			}
			continue
		}
		var werr error
		if n > 0 {
			_, werr = k.tls.Write((*b)[:n])
		}
		buffers.Put(b)
		switch {
		case werr != nil:
			if errors.Is(werr, syscall.ECONNRESET) || errors.Is(werr, syscall.EPIPE) {
				k.side.ended(Reset)
			} else if !errors.Is(werr, net.ErrClosed) && !errors.Is(werr, os.ErrDeadlineExceeded) {
				k.side.ended(Failed)
			}
			k.close()
			return
		case rerr != nil:
			k.close()
			return
		case n == 0:
			if !k.side.abort.Load() {
				_ = k.tls.CloseWrite()
				_ = k.side.raw.CloseWrite()
			}
			return
		}
	}
}

// readReady reads what is there, without waiting.
func readReady(rc syscall.RawConn, b []byte) (n int, err error) {
	cerr := rc.Control(func(fd uintptr) {
		for {
			n, err = unix.Read(int(fd), b)
			if err != unix.EINTR {
				return
			}
		}
	})
	if cerr != nil {
		return 0, cerr
	}
	if err != nil {
		return 0, err
	}
	return n, nil
}

// readable asks once whether something can be read; false makes RawConn.Read wait for it.
func readable(fd uintptr) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(p, 0)
	return err != nil || n > 0
}

func closeWrite(c net.Conn) {
	if u, ok := c.(*net.UnixConn); ok {
		_ = u.CloseWrite()
	}
}

func sni(c *tls.Conn) Info {
	if c == nil {
		return Info{}
	}
	return Info{SNI: c.ConnectionState().ServerName}
}

func info(c *tls.Conn) Info {
	st := c.ConnectionState()
	i := Info{Version: tls.VersionName(st.Version), SNI: st.ServerName, ALPN: st.NegotiatedProtocol}
	if len(st.VerifiedChains) > 0 {
		leaf := st.PeerCertificates[0]
		switch {
		case len(leaf.URIs) > 0:
			i.Identity = leaf.URIs[0].String()
		case len(leaf.DNSNames) > 0:
			i.Identity = leaf.DNSNames[0]
		}
	}
	return i
}
