// Package tlsterm terminates and originates TLS beside the event loop. crypto/tls needs goroutines that block; the loop
// must not. So each TLS connection is served by two goroutines here, and joined to the loop by a socket pair that carries
// the plaintext. What a socket pair can't carry (a reset, a connection that ended without close_notify, a close that must
// be a reset) goes beside it: see Side.
package tlsterm

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Config is how a listener terminates TLS.
type Config struct {
	Cert, Key        string // PEM files
	ClientCA         string // PEM file of the authorities that client certificates are checked against
	ClientAuth       string // none (default), request, require
	MinVersion       string // 1.2 (default), 1.3
	ALPN             []string
	HandshakeTimeout time.Duration // default 10s
	ReloadEvery      time.Duration // how often the files are looked at; default 10s
	OnReload         func(error)   // told of every new certificate (nil) and of files that can't be used; may be nil
}

// DefaultALPN is offered where nothing else is said.
func DefaultALPN() []string { return []string{"h2", "http/1.1"} }

const (
	defaultHandshake = 10 * time.Second
	defaultReload    = 10 * time.Second
)

// Terminator serves TLS for one listener.
type Terminator struct {
	handshake time.Duration
	files     *files
}

// NewTerminator reads the files; what is wrong with them is told at once, by key and path.
func NewTerminator(cfg Config) (*Terminator, error) {
	version, err := minVersion(cfg.MinVersion)
	if err != nil {
		return nil, err
	}
	auth := tls.NoClientCert
	switch cfg.ClientAuth {
	case "", "none":
		if cfg.ClientCA != "" {
			return nil, errors.New("client_ca without client_auth: want request or require")
		}
	case "request":
		auth = tls.VerifyClientCertIfGiven
	case "require":
		auth = tls.RequireAndVerifyClientCert
	default:
		return nil, fmt.Errorf("client_auth %q: want none, request or require", cfg.ClientAuth)
	}
	if auth != tls.NoClientCert && cfg.ClientCA == "" {
		return nil, fmt.Errorf("client_auth %s: needs client_ca", cfg.ClientAuth)
	}
	if cfg.Cert == "" || cfg.Key == "" {
		return nil, errors.New("want both cert and key")
	}
	if cfg.ALPN == nil {
		cfg.ALPN = DefaultALPN()
	}
	if cfg.HandshakeTimeout <= 0 {
		cfg.HandshakeTimeout = defaultHandshake
	}
	load := func(read func(key, path string) ([]byte, error)) (*tls.Config, error) {
		pair, err := keyPair(read, cfg.Cert, cfg.Key)
		if err != nil {
			return nil, err
		}
		c := &tls.Config{MinVersion: version, Certificates: []tls.Certificate{pair}, NextProtos: slices.Clone(cfg.ALPN), ClientAuth: auth}
		if cfg.ClientCA != "" {
			if c.ClientCAs, err = pool(read, "client_ca", cfg.ClientCA); err != nil {
				return nil, err
			}
		}
		return c, nil
	}
	f, err := watch(load, cfg.ReloadEvery, cfg.OnReload)
	if err != nil {
		return nil, err
	}
	return &Terminator{handshake: cfg.HandshakeTimeout, files: f}, nil
}

// Close stops looking at the files. Connections go on.
func (t *Terminator) Close() { t.files.close() }

// AppConfig is how TLS to the app is made.
type AppConfig struct {
	CA               string // PEM file; default: the system's authorities
	ServerName       string
	Insecure         bool   // the app's certificate is not verified
	Cert, Key        string // client certificate, optional
	HandshakeTimeout time.Duration
	ReloadEvery      time.Duration
	OnReload         func(error)
}

// Originator makes TLS to an app.
type Originator struct {
	handshake time.Duration
	files     *files
}

// NewOriginator reads the files.
func NewOriginator(cfg AppConfig) (*Originator, error) {
	if cfg.ServerName == "" && !cfg.Insecure {
		return nil, errors.New("want server_name, or insecure: true")
	}
	if cfg.Insecure && cfg.CA != "" {
		return nil, errors.New("ca and insecure contradict each other")
	}
	if (cfg.Cert == "") != (cfg.Key == "") {
		return nil, errors.New("want both cert and key, or neither")
	}
	if cfg.HandshakeTimeout <= 0 {
		cfg.HandshakeTimeout = defaultHandshake
	}
	load := func(read func(key, path string) ([]byte, error)) (*tls.Config, error) {
		c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: cfg.ServerName, InsecureSkipVerify: cfg.Insecure} //nolint:gosec // asked for in so many words
		var err error
		if cfg.CA != "" {
			if c.RootCAs, err = pool(read, "ca", cfg.CA); err != nil {
				return nil, err
			}
		}
		if cfg.Cert != "" {
			pair, err := keyPair(read, cfg.Cert, cfg.Key)
			if err != nil {
				return nil, err
			}
			c.Certificates = []tls.Certificate{pair}
		}
		return c, nil
	}
	f, err := watch(load, cfg.ReloadEvery, cfg.OnReload)
	if err != nil {
		return nil, err
	}
	return &Originator{handshake: cfg.HandshakeTimeout, files: f}, nil
}

// Close stops looking at the files.
func (o *Originator) Close() { o.files.close() }

func minVersion(v string) (uint16, error) {
	switch v {
	case "", "1.2":
		return tls.VersionTLS12, nil
	case "1.3":
		return tls.VersionTLS13, nil
	}
	return 0, fmt.Errorf("min_version %q: want 1.2 or 1.3", v)
}

func keyPair(read func(key, path string) ([]byte, error), cert, key string) (tls.Certificate, error) {
	c, err := read("cert", cert)
	if err != nil {
		return tls.Certificate{}, err
	}
	k, err := read("key", key)
	if err != nil {
		return tls.Certificate{}, err
	}
	pair, err := tls.X509KeyPair(c, k)
	if err != nil {
		return pair, fmt.Errorf("cert %s and key %s: %w", cert, key, err)
	}
	return pair, nil
}

func pool(read func(key, path string) ([]byte, error), key, path string) (*x509.CertPool, error) {
	b, err := read(key, path)
	if err != nil {
		return nil, err
	}
	p := x509.NewCertPool()
	if !p.AppendCertsFromPEM(b) {
		return nil, fmt.Errorf("%s %s: no certificate in it", key, path)
	}
	return p, nil
}

// files keeps a tls.Config that follows the files it was made from. They are compared by content: Kubernetes swaps a
// symlink, whose target's times say nothing.
type files struct {
	current atomic.Pointer[tls.Config]
	stop    chan struct{}
	wg      sync.WaitGroup
	once    sync.Once
}

type loader func(read func(key, path string) ([]byte, error)) (*tls.Config, error)

func watch(load loader, every time.Duration, told func(error)) (*files, error) {
	if every <= 0 {
		every = defaultReload
	}
	f := &files{stop: make(chan struct{})}
	seen := make(map[string]string)
	look := func() (c *tls.Config, changed bool, err error) {
		now := make(map[string]string)
		c, err = load(func(key, path string) ([]byte, error) {
			b, err := os.ReadFile(path)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", key, err)
			}
			now[path] = string(b)
			return b, nil
		})
		for path, b := range now {
			changed = changed || seen[path] != b
		}
		if err == nil || changed {
			seen = now
		}
		return c, changed, err
	}
	c, _, err := look()
	if err != nil {
		return nil, err
	}
	f.current.Store(c)
	f.wg.Go(func() {
		t := time.NewTicker(every)
		defer t.Stop()
		failed := false
		for {
			select {
			case <-f.stop:
				return
			case <-t.C:
			}
			c, changed, err := look()
			switch {
			case err != nil && (changed || !failed): // half a swap, or worse: what was good stays
				failed = true
				if told != nil {
					told(err)
				}
			case err == nil && (changed || failed):
				failed = false
				f.current.Store(c) // the whole of it: a session ticket of the old one's keys is good for nothing here
				if told != nil {
					told(nil)
				}
			}
		}
	})
	return f, nil
}

func (f *files) close() {
	f.once.Do(func() { close(f.stop) })
	f.wg.Wait()
}
