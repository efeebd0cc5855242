package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/lastcall-proxy/lastcall/bench/peers"
)

// What idle HTTP/2 connections and streams cost us, and how long it takes to say goodbye to all of them. Client and app are
// bare framers of ours: what they cost is not in the figures.
const (
	h2fresh    = 2000
	h2full     = 1000
	h2conns    = 20 // with h2streams idle streams each
	h2streams  = 500
	h2farewell = 5000
	// fieldLen and fields fill a table of 4096 octets (RFC 7541 section 4.1: 32 octets an entry beside its text) twice.
	fieldLen, fields = 96, 60
)

// h2end is one side of a connection.
type h2end struct {
	net.Conn
	fr  *http2.Framer
	enc *hpack.Encoder
	buf strings.Builder
}

func newH2end(c net.Conn) *h2end {
	e := &h2end{Conn: c, fr: http2.NewFramer(c, c)}
	e.enc = hpack.NewEncoder(&e.buf)
	e.fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	return e
}

func (e *h2end) headers(id uint32, end bool, kv ...string) error {
	e.buf.Reset()
	for i := 0; i < len(kv); i += 2 {
		if err := e.enc.WriteField(hpack.HeaderField{Name: kv[i], Value: kv[i+1]}); err != nil {
			return err
		}
	}
	return e.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte(e.buf.String()), EndHeaders: true, EndStream: end})
}

func filler(i int) string { return strconv.Itoa(i) + strings.Repeat("x", fieldLen) }

// serveH2 answers /hold with a head and nothing more, everything else with a head that fills the table.
func serveH2(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = c.Close() }()
			if _, err := readFull(c, len(http2.ClientPreface)); err != nil {
				return
			}
			e := newH2end(c)
			if e.fr.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 10_000}) != nil {
				return
			}
			for n := 0; ; n++ {
				f, err := e.fr.ReadFrame()
				if err != nil {
					return
				}
				h, ok := f.(*http2.MetaHeadersFrame)
				if !ok {
					continue
				}
				if h.PseudoValue("path") == "/hold" {
					err = e.headers(h.StreamID, false, ":status", "200")
				} else {
					err = e.headers(h.StreamID, true, ":status", "200", "x-fill", filler(n))
				}
				if err != nil {
					return
				}
			}
		}()
	}
}

func readFull(c net.Conn, n int) ([]byte, error) {
	b := make([]byte, n)
	for at := 0; at < n; {
		m, err := c.Read(b[at:])
		if err != nil {
			return nil, err
		}
		at += m
	}
	return b, nil
}

func dialH2(addr string) (*h2end, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	if _, err := c.Write([]byte(http2.ClientPreface)); err != nil {
		return nil, err
	}
	e := newH2end(c)
	return e, e.fr.WriteSettings()
}

// ask sends a request and reads up to its head.
func (e *h2end) ask(id uint32, path string, n int) error {
	if err := e.headers(id, true, ":method", "GET", ":path", path, ":scheme", "http", ":authority", "bench", "x-fill", filler(n)); err != nil {
		return err
	}
	for {
		f, err := e.fr.ReadFrame()
		if err != nil {
			return err
		}
		if h, ok := f.(*http2.MetaHeadersFrame); ok && h.StreamID == id {
			return nil
		}
	}
}

// idleHTTP2 opens n connections, does to each what each says, and tells the growth by unit.
func (b *bench) idleHTTP2(ctx context.Context, binary, app, name string, n, unitsEach int, each func(*h2end) error) error {
	p, err := peers.Start(ctx, filepath.Join(b.dir, "h2idle"), peers.Ours(binary, ours), app)
	if err != nil {
		return err
	}
	defer p.Stop()
	var held []*h2end
	defer func() {
		for _, e := range held {
			_ = e.Close()
		}
	}()
	open := func(n int) error {
		for range n {
			e, err := dialH2(p.Addr)
			if err != nil {
				return err
			}
			held = append(held, e)
			if err := each(e); err != nil {
				return err
			}
		}
		return nil
	}
	if err := open(5); err != nil { // code paths and pools are not the connections' cost
		return err
	}
	time.Sleep(settle)
	before, _, err := p.Memory()
	if err != nil {
		return err
	}
	if err := open(n); err != nil {
		return err
	}
	time.Sleep(2 * settle)
	after, _, err := p.Memory()
	if err != nil {
		return err
	}
	b.rep.Add(name, ours, "KB", float64(after-before)/1024/float64(n*unitsEach))
	return nil
}

func (b *bench) http2Memory(ctx context.Context, binary string) error {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer func() { _ = ln.Close() }()
	go serveH2(ln)
	app := ln.Addr().String()
	fmt.Fprintln(os.Stderr, "idle HTTP/2 connections and streams")
	if err := b.idleHTTP2(ctx, binary, app, "idle http2 connection, fresh", h2fresh, 1, func(e *h2end) error { return e.ask(1, "/", 0) }); err != nil {
		return err
	}
	if err := b.idleHTTP2(ctx, binary, app, "idle http2 connection, tables full", h2full, 1, func(e *h2end) error {
		for i := range fields {
			if err := e.ask(uint32(2*i+1), "/", i); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	if err := b.idleHTTP2(ctx, binary, app, "idle http2 stream", h2conns, h2streams, func(e *h2end) error {
		for i := range h2streams {
			if err := e.ask(uint32(2*i+1), "/hold", 0); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	return b.farewells(ctx, binary, app)
}

// farewells is the time from SIGTERM to the last GOAWAY read, over many idle connections.
func (b *bench) farewells(ctx context.Context, binary, app string) error {
	p, err := peers.Start(ctx, filepath.Join(b.dir, "h2bye"), peers.Ours(binary, ours), app)
	if err != nil {
		return err
	}
	defer p.Stop()
	var held []*h2end
	for range h2farewell {
		e, err := dialH2(p.Addr)
		if err != nil {
			return err
		}
		defer func() { _ = e.Close() }()
		if err := e.ask(1, "/", 0); err != nil {
			return err
		}
		held = append(held, e)
	}
	times := make(chan time.Time, len(held))
	var wg sync.WaitGroup
	for _, e := range held {
		wg.Go(func() {
			_ = e.SetReadDeadline(time.Now().Add(20 * time.Second))
			for {
				f, err := e.fr.ReadFrame()
				if err != nil {
					return
				}
				if _, ok := f.(*http2.GoAwayFrame); ok {
					times <- time.Now()
					return
				}
			}
		})
	}
	time.Sleep(settle)
	began := time.Now()
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	wg.Wait()
	close(times)
	told, last := 0, began
	for t := range times {
		told++
		if t.After(last) {
			last = t
		}
	}
	if told < len(held) {
		return errors.New("of " + strconv.Itoa(len(held)) + " connections only " + strconv.Itoa(told) + " were told")
	}
	b.rep.Add("goaway to "+strconv.Itoa(h2farewell), ours, "ms", last.Sub(began).Seconds()*1e3)
	return nil
}
