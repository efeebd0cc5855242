package load

import (
	"context"
	"crypto/tls"
	"net"
)

// dial opens a connection to the target, with TLS where the target says so.
func dial(ctx context.Context, s *Spec, to endpoint, alpn ...string) (net.Conn, error) {
	var d net.Dialer
	d.SetMultipathTCP(false)
	c, err := d.DialContext(ctx, "tcp", to.addr)
	if err != nil || !to.secure {
		return c, err
	}
	t := tls.Client(c, tlsConfig(s, to, alpn...))
	if err := t.HandshakeContext(ctx); err != nil {
		_ = c.Close()
		return nil, err
	}
	return t, nil
}

func tlsConfig(s *Spec, to endpoint, alpn ...string) *tls.Config {
	return &tls.Config{ServerName: to.host, InsecureSkipVerify: s.Insecure, NextProtos: alpn, MinVersion: tls.VersionTLS12} //nolint:gosec // asked for by insecure=true
}
