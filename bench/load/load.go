// Package load drives one address and measures what a client sees: HTTP/1 in a closed loop (as fast as answers come) and
// in an open loop (at a fixed rate, latency counted from the scheduled moment, so that a stall is not hidden by waiting),
// one connection per request, bulk downloads, and connections that are kept and idle.
package load

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Result is what a run saw.
type Result struct {
	Requests int
	Errors   int
	Bytes    int64
	Took     time.Duration
	Latency  []time.Duration // sorted
}

// Percentile of the latencies; 0 without any.
func (r *Result) Percentile(p float64) time.Duration {
	if len(r.Latency) == 0 {
		return 0
	}
	return r.Latency[min(len(r.Latency)-1, int(p*float64(len(r.Latency))))]
}

func (r *Result) add(o *Result) {
	r.Requests += o.Requests
	r.Errors += o.Errors
	r.Bytes += o.Bytes
	r.Latency = append(r.Latency, o.Latency...)
}

// conn is a client connection that counts whole answers.
type conn struct {
	net.Conn
	r       *bufio.Reader
	request []byte
}

func dial(ctx context.Context, addr, path string) (*conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	request := "GET " + path + " HTTP/1.1\r\nHost: bench\r\nUser-Agent: lastcall-bench\r\nAccept: */*\r\nAccept-Encoding: identity\r\nX-Request-Id: 0123456789\r\n\r\n"
	return &conn{Conn: c, r: bufio.NewReaderSize(c, 32<<10), request: []byte(request)}, nil
}

// ask sends the request and reads its whole answer; it returns the answer's bytes.
func (c *conn) ask() (int64, error) {
	if _, err := c.Write(c.request); err != nil {
		return 0, err
	}
	var size, length int64 = 0, -1
	for first := true; ; first = false {
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		size += int64(len(line))
		if first && (len(line) < 12 || line[9] != '2') {
			return 0, fmt.Errorf("load: answer %q", line)
		}
		if len(line) <= 2 {
			break
		}
		if line[0]|0x20 == 'c' && len(line) > 16 && strings.EqualFold(string(line[:15]), "content-length:") {
			if length, err = strconv.ParseInt(strings.TrimSpace(string(line[15:])), 10, 64); err != nil {
				return 0, fmt.Errorf("load: %w", err)
			}
		}
	}
	if length < 0 {
		return 0, errors.New("load: answer without Content-Length")
	}
	n, err := c.r.Discard(int(length))
	return size + int64(n), err
}

// Closed keeps conns connections busy for d.
func Closed(ctx context.Context, addr, path string, conns int, d time.Duration) (Result, error) {
	return parallel(ctx, conns, d, func(ctx context.Context, until time.Time, r *Result) error {
		c, err := dial(ctx, addr, path)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		for time.Now().Before(until) {
			n, err := c.ask()
			if err != nil {
				return err
			}
			r.Requests++
			r.Bytes += n
		}
		return nil
	})
}

// Open sends rate requests a second over conns kept connections for d, at Poisson moments.
func Open(ctx context.Context, addr, path string, conns, rate int, d time.Duration) (Result, error) {
	each := float64(conns) / float64(rate) * float64(time.Second)
	return parallel(ctx, conns, d, func(ctx context.Context, until time.Time, r *Result) error {
		c, err := dial(ctx, addr, path)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		at := time.Now()
		for {
			at = at.Add(time.Duration(rand.ExpFloat64() * each))
			if at.After(until) {
				return nil
			}
			time.Sleep(time.Until(at))
			n, err := c.ask()
			if err != nil {
				return err
			}
			r.Requests++
			r.Bytes += n
			r.Latency = append(r.Latency, time.Since(at))
		}
	})
}

// Short makes one connection per request.
func Short(ctx context.Context, addr, path string, workers int, d time.Duration) (Result, error) {
	return parallel(ctx, workers, d, func(ctx context.Context, until time.Time, r *Result) error {
		for time.Now().Before(until) {
			c, err := dial(ctx, addr, path)
			if err != nil {
				return err
			}
			n, err := c.ask()
			_ = c.Close()
			if err != nil {
				return err
			}
			r.Requests++
			r.Bytes += n
		}
		return nil
	})
}

// Idle opens conns connections, asks once on each, and returns them; closing is the caller's.
func Idle(ctx context.Context, addr, path string, conns int) ([]io.Closer, error) {
	all := make([]io.Closer, 0, conns)
	for range conns {
		c, err := dial(ctx, addr, path)
		if err != nil {
			return all, err
		}
		all = append(all, c)
		if _, err := c.ask(); err != nil {
			return all, fmt.Errorf("load: %w", err)
		}
		c.r = nil // the buffer would cost this process 32 KiB each
	}
	return all, nil
}

func parallel(ctx context.Context, n int, d time.Duration, f func(ctx context.Context, until time.Time, r *Result) error) (Result, error) {
	began := time.Now()
	until := began.Add(d)
	parts := make([]Result, n)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if errs[i] = f(ctx, until, &parts[i]); errs[i] != nil {
				parts[i].Errors++
			}
		})
	}
	wg.Wait()
	var sum Result
	for i := range parts {
		sum.add(&parts[i])
	}
	sum.Took = time.Since(began)
	slices.Sort(sum.Latency)
	if sum.Requests == 0 {
		return sum, errors.Join(errs...)
	}
	return sum, nil
}
