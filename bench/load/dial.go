package load

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"time"
)

// connects counts a load's TCP connections: what the kernel counts, too.
type connects struct {
	opened, refused, failed atomic.Uint64
	books
}

// Connections are a load's, as its clients' kernel saw them.
type Connections struct {
	Opened  uint64 `json:"opened"`
	Refused uint64 `json:"refused"` // RST to SYN, or right behind the handshake
	Failed  uint64 `json:"failed"`  // no answer, no way, or given up
	Bytes   Bytes  `json:"bytes"`
}

func (c *connects) now() Connections {
	return Connections{Opened: c.opened.Load(), Refused: c.refused.Load(), Failed: c.failed.Load(), Bytes: c.all.now()}
}

// connect opens a TCP connection to where new ones go.
func (e *endpoint) connect(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	d.SetMultipathTCP(false)
	c, err := d.DialContext(ctx, "tcp", e.now())
	switch {
	case err == nil:
		e.opened.Add(1)
		return e.count(c), nil
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET):
		e.refused.Add(1)
	default:
		e.failed.Add(1)
	}
	return c, err
}

// dial opens a connection to the target, with TLS where the target says so.
func dial(ctx context.Context, s *Spec, to endpoint, alpn ...string) (net.Conn, error) {
	c, err := to.connect(ctx)
	if err != nil || !to.secure {
		return c, err
	}
	t := tls.Client(c, tlsConfig(s, to, alpn...))
	if err := t.HandshakeContext(ctx); err != nil {
		_ = c.Close()
		return nil, &handshakeError{err, c.LocalAddr().String()}
	}
	return t, nil
}

// handshakeError is a TLS handshake's that came to nothing, with the client's address.
type handshakeError struct {
	error
	local string
}

func (e *handshakeError) Unwrap() error { return e.error }

// localOf is the client's address in a dial's error, where it had one.
func localOf(err error) string {
	var h *handshakeError
	if errors.As(err, &h) {
		return h.local
	}
	return ""
}

// follow looks after the target's readiness for as long as ctx lasts, as endpoints do: once lost it does not come back.
func follow(ctx context.Context, s *Spec, to endpoint) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Second}
	for ready(ctx, client, s.Ready) {
		if !sleep(ctx, 100*time.Millisecond) {
			return
		}
	}
	if sleep(ctx, s.Lag) {
		to.moved.Store(true)
	}
}

func ready(ctx context.Context, client *http.Client, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return false
	}
	req.Header.Set("User-Agent", "kube-probe/lastcall-load")
	res, err := client.Do(req)
	if err != nil {
		return false
	}
	_ = res.Body.Close()
	return res.StatusCode/100 == 2
}

func tlsConfig(s *Spec, to endpoint, alpn ...string) *tls.Config {
	return &tls.Config{ServerName: to.host, InsecureSkipVerify: s.Insecure, NextProtos: alpn, MinVersion: tls.VersionTLS12} //nolint:gosec // asked for by insecure=true
}
