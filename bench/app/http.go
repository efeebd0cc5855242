package app

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// answer reads the request and answers it: ?for=2s later, ?plant=… once in a bad way.
func (a *App) answer(w http.ResponseWriter, r *http.Request) {
	kind := "http1"
	if r.ProtoMajor == 2 {
		kind = "http2"
	}
	a.ledger.begin(kind)
	ended := false
	defer func() {
		if !ended {
			a.ledger.end(kind, false)
		}
	}()
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return
	}
	if d, err := time.ParseDuration(r.URL.Query().Get("for")); err == nil {
		select {
		case <-time.After(d):
		case <-r.Context().Done():
			return
		}
	}
	const body = "answered\n"
	if what := r.URL.Query().Get("plant"); a.plant(what) {
		a.fault(w, r, what, body)
		return
	}
	_, err := io.WriteString(w, body)
	ended = true
	a.ledger.end(kind, err == nil)
}

// fault goes wrong on purpose.
func (a *App) fault(w http.ResponseWriter, r *http.Request, what, body string) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	one := "HTTP/1.1 200 OK\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
	switch what {
	case "duplicate":
		_, _ = io.WriteString(c, one+one)
	case "reset":
		if s, ok := c.(*tls.Conn); ok {
			c = s.NetConn()
		}
		if t, ok := c.(*net.TCPConn); ok {
			_ = t.SetLinger(0)
		}
	case "truncate":
		_, _ = io.WriteString(c, one[:len(one)-3])
	case "silent":
		select {
		case <-a.going:
		case <-time.After(time.Minute):
		}
	}
	_ = c.Close()
}
