package load

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"
)

// dial opens a connection to the target, with TLS where the target says so.
func dial(ctx context.Context, s *Spec, to endpoint, alpn ...string) (net.Conn, error) {
	var d net.Dialer
	d.SetMultipathTCP(false)
	c, err := d.DialContext(ctx, "tcp", to.now())
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
