package main

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// slowReader takes a pause after each so many bytes.
type slowReader struct {
	r    io.Reader
	left int
}

func (s *slowReader) Read(p []byte) (int, error) {
	if s.left <= 0 {
		time.Sleep(2 * time.Millisecond)
		s.left = 4 << 20
	}
	n, err := s.r.Read(p)
	s.left -= n
	return n, err
}

// A large upload and a large download at once, each with a slow reader: every byte arrives, and what the sidecar holds of
// them stays bounded. LASTCALL_BULK_MIB=1024 makes it a gigabyte each way.
func TestBulkWithSlowReaders(t *testing.T) {
	size := int64(64 << 20)
	if n, err := strconv.ParseInt(os.Getenv("LASTCALL_BULK_MIB"), 10, 64); err == nil && n > 0 {
		size = n << 20
	}
	send := func(c *net.TCPConn) (sum string, err error) {
		h := sha256.New()
		_, err = io.Copy(io.MultiWriter(c, h), io.LimitReader(rand.NewChaCha8([32]byte{1}), size))
		_ = c.CloseWrite()
		return hex.EncodeToString(h.Sum(nil)), err
	}
	receive := func(c *net.TCPConn) (sum string, n int64, err error) {
		h := sha256.New()
		n, err = io.Copy(h, &slowReader{r: c})
		return hex.EncodeToString(h.Sum(nil)), n, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	p, addr := front(t, ln.Addr().String())
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := c.Write([]byte{0}); err != nil { // opaque from the first byte
		t.Fatal(err)
	}
	a, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.Close() }()
	if _, err := io.ReadFull(a, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	client, app := c.(*net.TCPConn), a.(*net.TCPConn)
	type result struct {
		sum string
		n   int64
		err error
	}
	sent, got := make(chan result, 2), make(chan result, 2)
	for _, end := range []*net.TCPConn{client, app} {
		go func() { sum, err := send(end); sent <- result{sum, size, err} }()
		go func() { sum, n, err := receive(end); got <- result{sum, n, err} }()
	}
	for range 2 {
		if s, r := <-sent, <-got; s.err != nil || r.err != nil || r.n != size || s.sum != r.sum {
			t.Errorf("sent %+v, got %+v", s, r)
		}
	}
	most := 64 << 10
	if raceEnabled {
		most *= 5
	}
	if peak := p.peakKB(t); peak > most {
		t.Errorf("resident at its peak: %d KB", peak)
	} else {
		t.Logf("%d MiB each way, resident at its peak: %d KB", size>>20, peak)
	}
	_, _ = c.Close(), a.Close()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("exit: %v", err)
	}
}
