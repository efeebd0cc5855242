//go:build linux

// Package epoll drives one address and measures what a client sees: HTTP/1 in a closed loop (as fast as answers come) and
// in an open loop (at a fixed rate, latency counted from the scheduled moment, so that a stall is not hidden by waiting),
// one connection per request, bulk downloads, and connections that are kept and idle.
//
// One thread drives all connections of a session from one epoll instance: the processors are shared with what is
// measured, and a generator that costs more per request than the proxy would measure itself.
package epoll

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Result is what a run saw.
type Result struct {
	Requests int
	Errors   int
	Bytes    int64
	Took     time.Duration
	Latency  []time.Duration // of an open loop, sorted
}

// Percentile of the latencies; 0 without any.
func (r *Result) Percentile(p float64) time.Duration {
	if len(r.Latency) == 0 {
		return 0
	}
	return r.Latency[min(len(r.Latency)-1, int(p*float64(len(r.Latency))))]
}

// Session is a set of connections to one address. A session is used by one goroutine at a time.
type Session struct {
	to      netip.AddrPort
	request []byte
	epfd    int
	conns   []*conn
	events  []unix.EpollEvent
	buf     []byte
}

type conn struct {
	fd   int // -1: it failed
	ans  answer
	busy bool
	at   time.Time // when the request under way was due
}

// Dial opens conns connections and asks once on each, one after the other, so that a measurement pays neither for
// opening nor for what a proxy allocates at the first request, and no proxy sees a burst.
func Dial(ctx context.Context, addr, path string, conns int) (*Session, error) {
	s, err := newSession(addr, path)
	if err != nil {
		return nil, err
	}
	for range conns {
		c := &conn{fd: -1}
		s.conns = append(s.conns, c)
		if err = s.open(len(s.conns) - 1); err == nil {
			err = s.ask(c)
		}
		if err = errors.Join(err, ctx.Err()); err != nil {
			s.Close()
			return nil, fmt.Errorf("load: connection %d of %d: %w", len(s.conns), conns, err)
		}
	}
	return s, nil
}

func newSession(addr, path string) (*Session, error) {
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("load: epoll: %w", err)
	}
	request := "GET " + path + " HTTP/1.1\r\nHost: bench\r\nUser-Agent: lastcall-bench\r\nAccept: */*\r\nAccept-Encoding: identity\r\nX-Request-Id: 0123456789\r\n\r\n"
	return &Session{to: to, request: []byte(request), epfd: epfd, events: make([]unix.EpollEvent, 512), buf: make([]byte, 256<<10)}, nil
}

// Close closes all connections.
func (s *Session) Close() {
	for _, c := range s.conns {
		s.drop(c)
	}
	_ = unix.Close(s.epfd)
}

func (s *Session) open(i int) error {
	fd, err := connect(s.to)
	if err != nil {
		return err
	}
	if err := unix.EpollCtl(s.epfd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(i)}); err != nil {
		_ = unix.Close(fd)
		return fmt.Errorf("load: epoll: %w", err)
	}
	*s.conns[i] = conn{fd: fd}
	return nil
}

func (s *Session) drop(c *conn) {
	if c.fd >= 0 {
		_ = unix.Close(c.fd)
	}
	*c = conn{fd: -1}
}

// ask waits for the whole answer.
func (s *Session) ask(c *conn) error {
	if err := send(c.fd, s.request); err != nil {
		return err
	}
	for {
		n, e := receive(c.fd, s.buf, 0)
		switch {
		case e == unix.EINTR:
			continue
		case e != 0:
			return fmt.Errorf("receive: %w", e)
		case n == 0:
			return errors.New("closed before the answer")
		}
		if whole, err := c.ans.feed(s.buf[:n]); whole || err != nil {
			return err
		}
	}
}

// Closed keeps every connection busy for d, and waits for the last answers.
func (s *Session) Closed(ctx context.Context, d time.Duration) (Result, error) {
	return s.drive(ctx, &run{want: d})
}

// Open sends rate requests a second for d, at Poisson moments, each on the connection that has been free for longest; when
// none is free the request waits, and its latency with it.
func (s *Session) Open(ctx context.Context, rate int, d time.Duration) (Result, error) {
	return s.drive(ctx, &run{want: d, gap: float64(time.Second) / float64(rate)})
}

// Short keeps workers busy for d, with one connection per request.
func Short(ctx context.Context, addr, path string, workers int, d time.Duration) (Result, error) {
	s, err := newSession(addr, path)
	if err != nil {
		return Result{}, err
	}
	defer s.Close()
	for i := range workers {
		s.conns = append(s.conns, &conn{fd: -1})
		if err := s.open(i); err != nil {
			return Result{}, err
		}
	}
	return s.drive(ctx, &run{want: d, short: true})
}

// run is a measurement under way.
type run struct {
	want  time.Duration
	gap   float64 // mean nanoseconds between requests; 0: closed loop
	short bool

	until   time.Time
	next    time.Time   // the next request is due
	due     []time.Time // requests that are due and have no connection yet
	free    []int       // connections without a request
	flying  int
	res     Result
	problem error // the first
}

// grace is how long the last answers may take; what then is missing counts as errors.
const grace = 10 * time.Second

func (s *Session) drive(ctx context.Context, r *run) (Result, error) {
	runtime.LockOSThread() // the timer slack below is the thread's
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
		return r.res, fmt.Errorf("load: timer slack: %w", err)
	}
	began := time.Now()
	r.until, r.next = began.Add(r.want), began
	for i, c := range s.conns {
		switch {
		case c.fd < 0:
		case r.gap > 0:
			r.free = append(r.free, i)
		default:
			s.start(r, c, began)
		}
	}
	for now := began; ; now = time.Now() {
		timeout := maxWait
		if r.gap > 0 {
			s.arrive(r, now)
			timeout = time.Until(r.next)
		}
		if r.flying == 0 && (r.gap == 0 || !r.next.Before(r.until) && len(r.due) == 0 || len(r.free) == 0) {
			break
		}
		if ctx.Err() != nil || now.After(r.until.Add(grace)) {
			r.res.Errors += r.flying + len(r.due)
			r.problem = errors.Join(r.problem, ctx.Err(), fmt.Errorf("load: %d answers missing", r.flying))
			break
		}
		if !r.next.Before(r.until) {
			timeout = maxWait
		}
		n, err := wait(s.epfd, s.events, timeout)
		if err != nil {
			return r.res, err
		}
		for _, e := range s.events[:n] {
			s.ready(r, int(e.Fd))
		}
	}
	r.res.Took = time.Since(began)
	slices.Sort(r.res.Latency)
	if r.res.Requests == 0 {
		return r.res, errors.Join(errors.New("load: no answer"), r.problem)
	}
	return r.res, nil
}

// arrive makes the requests whose moment has come.
func (s *Session) arrive(r *run, now time.Time) {
	for !r.next.After(now) && r.next.Before(r.until) {
		r.due = append(r.due, r.next)
		r.next = r.next.Add(time.Duration(rand.ExpFloat64() * r.gap))
	}
	for len(r.due) > 0 && len(r.free) > 0 {
		c := s.conns[r.free[0]]
		r.free = r.free[1:]
		s.start(r, c, r.due[0])
		r.due = r.due[1:]
	}
}

func (s *Session) start(r *run, c *conn, at time.Time) {
	if err := send(c.fd, s.request); err != nil {
		s.fail(r, c, err)
		return
	}
	c.at, c.busy = at, true
	r.flying++
}

func (s *Session) fail(r *run, c *conn, err error) {
	if c.busy {
		r.flying--
	}
	r.res.Errors++
	r.problem = firstOf(r.problem, err)
	s.drop(c)
}

func firstOf(first, then error) error {
	if first != nil {
		return first
	}
	return then
}

func (s *Session) ready(r *run, i int) {
	c := s.conns[i]
	if c.fd < 0 {
		return
	}
	n, e := receive(c.fd, s.buf, unix.MSG_DONTWAIT)
	switch {
	case e == unix.EAGAIN || e == unix.EINTR:
		return
	case e != 0:
		s.fail(r, c, fmt.Errorf("load: receive: %w", e))
		return
	case n == 0 || !c.busy:
		s.fail(r, c, errors.New("load: closed, or bytes that nobody asked for"))
		return
	}
	r.res.Bytes += int64(n)
	whole, err := c.ans.feed(s.buf[:n])
	if err != nil {
		s.fail(r, c, err)
		return
	}
	if whole {
		s.finish(r, i, c)
	}
}

func (s *Session) finish(r *run, i int, c *conn) {
	now := time.Now()
	r.res.Requests++
	r.flying--
	c.busy = false
	if r.gap > 0 {
		r.res.Latency = append(r.res.Latency, now.Sub(c.at))
		r.free = append(r.free, i)
		return
	}
	if r.short {
		s.drop(c)
	}
	if !now.Before(r.until) {
		return
	}
	if r.short {
		if err := s.open(i); err != nil {
			s.fail(r, c, err)
			return
		}
	}
	s.start(r, c, now)
}
