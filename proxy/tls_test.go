package proxy_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/lastcall-proxy/lastcall/proxy"
	"github.com/lastcall-proxy/lastcall/proxy/config"
	"github.com/lastcall-proxy/lastcall/tracker"
	"github.com/lastcall-proxy/lastcall/tracker/trackertest"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
	pool *x509.CertPool
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(crand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, _ := x509.ParseCertificate(der)
	a := &authority{cert: cert, key: key, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pool: x509.NewCertPool()}
	a.pool.AddCert(cert)
	return a
}

// issue makes a certificate; valid until now+life.
func (a *authority) issue(t *testing.T, name string, serial int64, life time.Duration) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	id, _ := url.Parse("spiffe://test/" + name)
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, URIs: []*url.URL{id}, NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(life), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(crand.Reader, tmpl, a.cert, &k.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	kd, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: kd})
}

func (a *authority) pair(t *testing.T, name string, life time.Duration) tls.Certificate {
	t.Helper()
	c, k := a.issue(t, name, 7, life)
	p, err := tls.X509KeyPair(c, k)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// mount is a Kubernetes secret volume: names are links into ..data, which is a link that is swapped.
type mount struct {
	dir string
	n   int
}

func (m *mount) path(name string) string { return filepath.Join(m.dir, name) }

func (m *mount) put(t *testing.T, files map[string][]byte) {
	t.Helper()
	m.n++
	version := filepath.Join(m.dir, fmt.Sprintf("..v%d", m.n))
	if err := os.Mkdir(version, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(version, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
		_ = os.Symlink(filepath.Join("..data", name), m.path(name))
	}
	next := filepath.Join(m.dir, "..next")
	if err := os.Symlink(filepath.Base(version), next); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, filepath.Join(m.dir, "..data")); err != nil {
		t.Fatal(err)
	}
}

// secureWorld terminates TLS with a certificate of ca's for "web".
func secureWorld(t *testing.T, ca *authority, change ...func(*config.Listener, *mount)) (*world, *mount) {
	t.Helper()
	m := &mount{dir: t.TempDir()}
	cert, key := ca.issue(t, "web", 2, time.Hour)
	m.put(t, map[string][]byte{"tls.crt": cert, "tls.key": key, "ca.crt": ca.pem})
	return newWorld(t, func(c *config.Config) {
		in := &c.Inbound[0]
		in.TLS = &config.TLS{Cert: m.path("tls.crt"), Key: m.path("tls.key")}
		for _, f := range change {
			f(in, m)
		}
	}), m
}

func client(ca *authority, change ...func(*tls.Config)) *http.Client {
	c := &tls.Config{RootCAs: ca.pool, ServerName: "web", MinVersion: tls.VersionTLS12}
	for _, f := range change {
		f(c)
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: c, ForceAttemptHTTP2: false}, Timeout: 10 * time.Second}
}

func TestTLSTerminated(t *testing.T) {
	ca := newAuthority(t, "ca")
	w, _ := secureWorld(t, ca, func(l *config.Listener, m *mount) {
		l.TLS.ClientCA, l.TLS.ClientAuth, l.ForwardedHeaders = m.path("ca.crt"), "require", true
	})
	w.serve(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(rw, r.Header.Get("Forwarded")) }))
	c := client(ca, func(c *tls.Config) { c.Certificates = []tls.Certificate{ca.pair(t, "caller", time.Hour)} })
	res, err := c.Get("https://" + w.addr + "/x")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if !strings.HasSuffix(string(body), "proto=https") {
		t.Errorf("Forwarded: got %q", body)
	}
	c.CloseIdleConnections()
	trackertest.WaitFor(t, w.reg, trackertest.Ended(tracker.WhatConnection, 1))
	rec, _, _ := w.reg.Get(1)
	if rec.Fate != tracker.Completed || rec.By != tracker.ByClient || rec.Peer.SNI != "web" || rec.Peer.Identity != "spiffe://test/caller" || rec.Kind != tracker.KindHTTP1 {
		t.Errorf("record: got %s by %s, kind %s, peer %+v", rec.Fate, rec.By, rec.Kind, rec.Peer)
	}
}

// Handshakes that fail, each with its fate, and the others go on.
func TestTLSRefused(t *testing.T) {
	ca, stranger := newAuthority(t, "ca"), newAuthority(t, "stranger")
	w, _ := secureWorld(t, ca, func(l *config.Listener, m *mount) {
		l.TLS.ClientCA, l.TLS.ClientAuth, l.TLS.HandshakeTimeout = m.path("ca.crt"), "require", 300*time.Millisecond
	})
	w.serve(t, http.HandlerFunc(hello))
	good := client(ca, func(c *tls.Config) { c.Certificates = []tls.Certificate{ca.pair(t, "good", time.Hour)} })
	get := func(c *http.Client) error {
		res, err := c.Get("https://" + w.addr + "/")
		if err == nil {
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
		}
		return err
	}
	if err := get(good); err != nil {
		t.Fatal(err)
	}
	with := func(p tls.Certificate) func() error {
		return func() error { return get(client(ca, func(c *tls.Config) { c.Certificates = []tls.Certificate{p} })) }
	}
	raw := func(text string, close bool) func() error {
		return func() error {
			c, err := net.Dial("tcp", w.addr)
			if err != nil {
				return nil
			}
			defer func() { _ = c.Close() }()
			_, _ = io.WriteString(c, text)
			if close {
				return io.EOF
			}
			_, err = io.ReadAll(c)
			return errors.Join(err, io.EOF)
		}
	}
	tests := []struct {
		name string
		do   func() error
		want tracker.End
	}{
		{"expired", with(ca.pair(t, "late", -time.Hour)), tracker.End{Fate: tracker.Rejected, By: tracker.ByLastcall, How: tracker.HowProtocol}},
		{"stranger", with(stranger.pair(t, "x", time.Hour)), tracker.End{Fate: tracker.Rejected, By: tracker.ByLastcall, How: tracker.HowProtocol}},
		{"none", func() error { return get(client(ca)) }, tracker.End{Fate: tracker.Rejected, By: tracker.ByLastcall, How: tracker.HowProtocol}},
		{"wrong name", func() error { return get(client(ca, func(c *tls.Config) { c.ServerName = "other" })) }, tracker.End{Fate: tracker.Aborted, By: tracker.ByClient, How: tracker.HowProtocol}},
		{"unknown authority", func() error { return get(client(stranger)) }, tracker.End{Fate: tracker.Aborted, By: tracker.ByClient, How: tracker.HowProtocol}},
		{"not TLS", raw("GET / HTTP/1.1\r\n\r\n", false), tracker.End{Fate: tracker.Aborted, By: tracker.ByLastcall, How: tracker.HowProtocol}},
		{"leaves", raw("", true), tracker.End{Fate: tracker.Aborted, By: tracker.ByClient, How: tracker.HowFIN}},
		{"silent", raw("", false), tracker.End{Fate: tracker.TimedOut, By: tracker.ByLastcall, How: tracker.HowTimeout}},
	}
	for i, tt := range tests {
		if err := tt.do(); err == nil {
			t.Errorf("%s: no error", tt.name)
		}
		trackertest.WaitFor(t, w.reg, trackertest.Ended(tracker.WhatConnection, uint64(i+1)))
		rec, _, _ := w.reg.Get(uint64(i + 2))
		if rec.Fate != tt.want.Fate || rec.By != tt.want.By || rec.How != tt.want.How || rec.Stage != tracker.StageHandshake || rec.Reason == "" {
			t.Errorf("%s: got %s by %s %s at %s (%s), want %s by %s %s at handshake", tt.name, rec.Fate, rec.By, rec.How, rec.Stage, rec.Reason, tt.want.Fate, tt.want.By, tt.want.How)
		}
	}
	if err := get(good); err != nil { // on the connection of before
		t.Error(err)
	}
	good.CloseIdleConnections()
	trackertest.WaitFor(t, w.reg, trackertest.Ended(tracker.WhatConnection, uint64(len(tests)+1)))
}

// What TCP did below TLS is passed on as what it was, in both directions.
func TestTLSBroken(t *testing.T) {
	ca := newAuthority(t, "ca")
	w, _ := secureWorld(t, ca)
	session := func(t *testing.T) (*tls.Conn, *net.TCPConn, *net.TCPConn) {
		t.Helper()
		tcp, _ := w.dial(t)
		c := tls.Client(tcp, &tls.Config{RootCAs: ca.pool, ServerName: "web", MinVersion: tls.VersionTLS12})
		if _, err := c.Write([]byte("\x00hello")); err != nil {
			t.Fatal(err)
		}
		a, err := w.app.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(a, make([]byte, 6)); err != nil {
			t.Fatal(err)
		}
		app, _ := a.(*net.TCPConn)
		_ = app.SetDeadline(time.Now().Add(10 * time.Second))
		return c, tcp, app
	}
	buf := make([]byte, 100)
	n := uint64(0)
	check := func(t *testing.T, fate tracker.Fate, by tracker.Party, how tracker.How) {
		t.Helper()
		n++
		trackertest.WaitFor(t, w.reg, trackertest.Ended(tracker.WhatConnection, n))
		if r, _, _ := w.reg.Get(n); r.Fate != fate || r.By != by || r.How != how {
			t.Errorf("got %s by %s %s (%s), want %s by %s %s", r.Fate, r.By, r.How, r.Reason, fate, by, how)
		}
	}
	t.Run("half-close each way", func(t *testing.T) {
		c, _, app := session(t)
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if _, err := app.Read(buf); !errors.Is(err, io.EOF) {
			t.Errorf("the app reads %v, want EOF", err)
		}
		_, _ = io.WriteString(app, "last words")
		_ = app.Close()
		b, err := io.ReadAll(c) // an error unless close_notify came
		if err != nil || string(b) != "last words" {
			t.Errorf("the client reads %q, %v", b, err)
		}
		_ = c.Close()
		check(t, tracker.Completed, tracker.ByClient, tracker.HowFIN)
	})
	t.Run("client resets", func(t *testing.T) {
		_, tcp, app := session(t)
		_ = tcp.SetLinger(0)
		_ = tcp.Close()
		if _, err := app.Read(buf); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the app reads %v, want a reset", err)
		}
		_ = app.Close()
		check(t, tracker.Aborted, tracker.ByClient, tracker.HowRST)
	})
	t.Run("client without close_notify", func(t *testing.T) {
		_, tcp, app := session(t)
		_ = tcp.CloseWrite()
		if _, err := app.Read(buf); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the app reads %v, want a reset", err)
		}
		_, _ = tcp.Close(), app.Close()
		check(t, tracker.Aborted, tracker.ByClient, tracker.HowFIN)
	})
	t.Run("app resets", func(t *testing.T) {
		c, tcp, app := session(t)
		_ = app.SetLinger(0)
		_ = app.Close()
		if _, err := c.Read(buf); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("the client reads %v, want no clean end", err)
		}
		_ = tcp.Close()
		check(t, tracker.Aborted, tracker.ByApp, tracker.HowRST)
	})
	t.Run("bytes", func(t *testing.T) {
		c, _, app := session(t)
		const size = 8 << 20
		go func() { _, _ = io.Copy(app, app); _ = app.CloseWrite() }()
		go func() {
			for i := 0; i < size; {
				k := min(1+i%40000, size-i)
				_, _ = c.Write(bytes.Repeat([]byte{byte(i)}, k))
				i += k
			}
			_ = c.CloseWrite()
		}()
		got, err := io.ReadAll(c)
		if err != nil || len(got) != size {
			t.Fatalf("got %d bytes, %v", len(got), err)
		}
		for i := 0; i < size; {
			k := min(1+i%40000, size-i)
			if got[i] != byte(i) || got[i+k-1] != byte(i) {
				t.Fatalf("byte %d differs", i)
			}
			i += k
		}
		_, _ = c.Close(), app.Close()
		check(t, tracker.Completed, tracker.ByClient, tracker.HowFIN)
	})
}

// A certificate is swapped under load: no request fails, and the next handshake has the new one.
func TestTLSReload(t *testing.T) {
	ca := newAuthority(t, "ca")
	m := &mount{dir: t.TempDir()}
	cert, key := ca.issue(t, "web", 2, time.Hour)
	m.put(t, map[string][]byte{"tls.crt": cert, "tls.key": key})
	app, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	reg := trackertest.New(t, tracker.Config{Shards: 1})
	srv, err := proxy.New(proxy.Config{Registry: reg, Loops: 1, Logger: zap.NewNop(), ReloadEvery: 10 * time.Millisecond, Settings: &config.Config{Inbound: []config.Listener{{
		Listen: "127.0.0.1:0", App: app.Addr().String(), TLS: &config.TLS{Cert: m.path("tls.crt"), Key: m.path("tls.key")}}}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Listen(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { srv.Close(); _ = app.Close() })
	w := &world{reg: reg, srv: srv, addr: srv.Addrs()[0], app: app}
	w.serve(t, http.HandlerFunc(hello))
	serial := func() int64 {
		c, err := tls.Dial("tcp", w.addr, &tls.Config{RootCAs: ca.pool, ServerName: "web", MinVersion: tls.VersionTLS12})
		if err != nil {
			t.Error(err)
			return 0
		}
		defer func() { _ = c.Close() }()
		return c.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
	}
	var wg sync.WaitGroup
	var done atomic.Bool
	var requests atomic.Int64
	for i := range 4 {
		wg.Go(func() {
			c := client(ca)
			c.Transport.(*http.Transport).DisableKeepAlives = i%2 == 0
			for !done.Load() {
				res, err := c.Get("https://" + w.addr + "/")
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, res.Body)
				_ = res.Body.Close()
				requests.Add(1)
			}
			c.CloseIdleConnections()
		})
	}
	until := func(want int64) {
		t.Helper()
		for began := time.Now(); serial() != want; {
			if time.Since(began) > 10*time.Second {
				t.Fatalf("certificate %d never came", want)
			}
		}
	}
	until(2)
	c3, k3 := ca.issue(t, "web", 3, time.Hour)
	m.put(t, map[string][]byte{"tls.crt": c3, "tls.key": key}) // half a swap: they do not belong together
	before := requests.Load()
	for requests.Load() < before+50 && !t.Failed() {
		runtime.Gosched()
	}
	until(2)
	m.put(t, map[string][]byte{"tls.crt": c3, "tls.key": k3})
	until(3)
	done.Store(true)
	wg.Wait()
}

// TLS on both sides: the app is offered what the client has negotiated.
func TestTLSToTheApp(t *testing.T) {
	ca := newAuthority(t, "ca")
	appCert, appKey := ca.issue(t, "app.internal", 5, time.Hour)
	pair, err := tls.X509KeyPair(appCert, appKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]struct {
		server string
		fate   tracker.Fate
	}{"right name": {"app.internal", tracker.Completed}, "wrong name": {"other.internal", tracker.Unreachable}} {
		t.Run(name, func(t *testing.T) {
			w, _ := secureWorld(t, ca, func(l *config.Listener, m *mount) {
				l.AppTLS = &config.AppTLS{CA: m.path("ca.crt"), ServerName: want.server}
			})
			s := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(rw, r.Proto+" "+r.TLS.NegotiatedProtocol)
			}), ReadHeaderTimeout: 5 * time.Second, TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}}
			go func() { _ = s.ServeTLS(w.app, "", "") }()
			t.Cleanup(func() { _ = s.Close() })
			c := client(ca)
			c.Transport.(*http.Transport).ForceAttemptHTTP2 = true
			res, err := c.Get("https://" + w.addr + "/")
			if (err == nil) != (want.fate == tracker.Completed) {
				t.Fatalf("request: %v", err)
			}
			if err == nil {
				b, _ := io.ReadAll(res.Body)
				_ = res.Body.Close()
				if string(b) != "HTTP/2.0 h2" {
					t.Errorf("the app saw %q", b)
				}
			}
			c.CloseIdleConnections()
			trackertest.WaitFor(t, w.reg, trackertest.Ended(tracker.WhatConnection, 1))
			if r, _, _ := w.reg.Get(1); r.Fate != want.fate {
				t.Errorf("got %s by %s %s (%s), want %s", r.Fate, r.By, r.How, r.Reason, want.fate)
			}
		})
	}
}
