package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// demoClients are the peers in front of the sidecar. Each says in one line what happened to it.
type demoClients struct {
	web, tcp string // the sidecar's addresses
	say      func(who, what string)
	wg       sync.WaitGroup
}

// start opens every long connection and returns when all of them are in flight.
func (d *demoClients) start(ctx context.Context) error {
	var ready sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	run := func(who string, f func(ctx context.Context, up func()) (string, error)) {
		ready.Add(1)
		once := sync.OnceFunc(ready.Done)
		d.wg.Go(func() {
			what, err := f(ctx, once)
			if err != nil {
				what = err.Error()
				mu.Lock()
				errs = append(errs, fmt.Errorf("demo: %s: %w", who, err))
				mu.Unlock()
			}
			once()
			d.say(who, what)
		})
	}
	run("slow request", func(ctx context.Context, up func()) (string, error) { return d.request(ctx, "/slow", up) })
	run("endless request", func(ctx context.Context, up func()) (string, error) { return d.request(ctx, "/never", up) })
	run("idle keep-alive", d.idle)
	run("websocket", d.websocket)
	run("event stream", d.events)
	run("tcp session", d.raw)
	ready.Wait()
	mu.Lock()
	defer mu.Unlock()
	return errors.Join(errs...)
}

func (d *demoClients) dial(ctx context.Context, addr string) (net.Conn, error) {
	var dialer net.Dialer
	return dialer.DialContext(ctx, "tcp", addr)
}

// request makes one request on a connection of its own; up is called when it is sent.
func (d *demoClients) request(ctx context.Context, path string, up func()) (string, error) {
	c, err := d.dial(ctx, d.web)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: demo\r\nUser-Agent: demo\r\n\r\n", path); err != nil {
		return "", err
	}
	up()
	return answer(bufio.NewReader(c)), nil
}

// answer reads one response and says what came.
func answer(r *bufio.Reader) string {
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		return fmt.Sprintf("no answer: %v", err)
	}
	body, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil {
		return fmt.Sprintf("%s, then cut off: %v", res.Status, err)
	}
	if res.Close {
		return fmt.Sprintf("%s, %d bytes, Connection: close", res.Status, len(body))
	}
	return fmt.Sprintf("%s, %d bytes", res.Status, len(body))
}

func (d *demoClients) idle(ctx context.Context, up func()) (string, error) {
	c, err := d.dial(ctx, d.web)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	if _, err := io.WriteString(c, "GET /fast HTTP/1.1\r\nHost: demo\r\nUser-Agent: demo\r\n\r\n"); err != nil {
		return "", err
	}
	r := bufio.NewReader(c)
	first := answer(r)
	up()
	since := time.Now()
	if _, err := r.ReadByte(); !errors.Is(err, io.EOF) {
		return fmt.Sprintf("%s, then %v", first, err), nil
	}
	return fmt.Sprintf("closed by FIN after %.1fs of silence", time.Since(since).Seconds()), nil
}

func (d *demoClients) websocket(ctx context.Context, up func()) (string, error) {
	c, res, err := websocket.Dial(ctx, "ws://"+d.web+"/chat", nil)
	if err != nil {
		return "", err
	}
	if res.Body != nil {
		defer func() { _ = res.Body.Close() }()
	}
	defer func() { _ = c.CloseNow() }()
	if err := c.Write(ctx, websocket.MessageText, []byte("hello")); err != nil {
		return "", err
	}
	if _, _, err := c.Read(ctx); err != nil {
		return "", err
	}
	up()
	_, _, err = c.Read(ctx)
	if code := websocket.CloseStatus(err); code >= 0 {
		return fmt.Sprintf("Close %d", int(code)), nil
	}
	return fmt.Sprintf("no Close: %v", err), nil
}

func (d *demoClients) events(ctx context.Context, up func()) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+d.web+"/events", nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("User-Agent", "demo")
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	res, err := tr.RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	r := bufio.NewReader(res.Body)
	events, last := 0, ""
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			if errors.Is(err, io.EOF) && last == "\n" {
				return fmt.Sprintf("%d whole events, clean end", events), nil
			}
			return fmt.Sprintf("%d events, broken end: %v", events, err), nil
		}
		last = line
		if strings.TrimSpace(line) == "" {
			events++
			up()
		}
	}
}

func (d *demoClients) raw(ctx context.Context, up func()) (string, error) {
	c, err := d.dial(ctx, d.tcp)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	if _, err := c.Write([]byte{1, 2, 3, 4}); err != nil {
		return "", err
	}
	if _, err := io.ReadFull(c, make([]byte, 4)); err != nil {
		return "", err
	}
	up()
	_, err = c.Read(make([]byte, 1))
	if errors.Is(err, io.EOF) {
		return "half-closed by FIN", nil
	}
	return fmt.Sprintf("cut off: %v", err), nil
}
