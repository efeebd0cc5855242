package app

import (
	"errors"
	"io"
	"net"
	"time"
)

// serveTCP echoes lines.
func (a *App) serveTCP(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		a.mu.Lock()
		a.conns[c] = struct{}{}
		a.mu.Unlock()
		a.ledger.begin("tcp")
		a.wg.Go(func() {
			whole := a.echo(c)
			a.ledger.end("tcp", whole)
			a.mu.Lock()
			delete(a.conns, c)
			a.mu.Unlock()
			_ = c.Close()
		})
	}
}

func (a *App) echo(c net.Conn) (whole bool) {
	over := make(chan struct{})
	defer close(over)
	go func() {
		select {
		case <-a.going: // what has come is answered; the deadline wakes the reader
			_ = c.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		case <-over:
		}
	}()
	buf := make([]byte, 32<<10)
	for {
		n, err := c.Read(buf)
		if n > 0 {
			a.ledger.bytes("tcp", n)
			if _, err := c.Write(buf[:n]); err != nil {
				return false
			}
		}
		var t net.Error
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			return true
		case errors.As(err, &t) && t.Timeout():
			goodbye(c)
			return true
		default:
			return false
		}
	}
}

// goodbye says FIN and reads on for a moment: closing with something unread would send a reset, and the client might lose
// what it was answered.
func goodbye(c net.Conn) {
	if h, ok := c.(interface{ CloseWrite() error }); ok {
		_ = h.CloseWrite()
	}
	_ = c.SetReadDeadline(time.Now().Add(time.Second))
	_, _ = io.Copy(io.Discard, c)
}
