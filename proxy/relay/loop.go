package relay

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Config sets up a Loop. The zero value of each field means its default.
type Config struct {
	BufferSize  int           // bytes read at once, and the bound of what waits unsent per flow; 64 KiB
	DialTimeout time.Duration // 10s
	Linger      time.Duration // how long a finished link waits for its peers' FIN before it closes; 1s
	ResetWait   time.Duration // how long a reset waits for the bytes before it to be acknowledged; 5s
	Prepare     func(fd int)  // options for every socket of a link, after TCP_NODELAY; may be nil
	Now         func() int64  // ns; default: wall time
}

func (c Config) withDefaults() Config {
	if c.BufferSize == 0 {
		c.BufferSize = 64 << 10
	}
	if c.DialTimeout == 0 {
		c.DialTimeout = 10 * time.Second
	}
	if c.Linger == 0 {
		c.Linger = time.Second
	}
	if c.ResetWait == 0 {
		c.ResetWait = 5 * time.Second
	}
	if c.Now == nil {
		c.Now = func() int64 { return time.Now().UnixNano() }
	}
	return c
}

// handler is what stands behind a descriptor in a loop's table.
type handler interface {
	event(slot int, events uint32)
}

type entry struct {
	h    handler
	slot int
	gen  int32 // guards against events for an earlier user of the same descriptor
}

// Loop owns an epoll instance and the links on it.
type Loop struct {
	// Immutable.
	cfg    Config
	epfd   int
	wakefd int32
	file   *os.File
	rc     syscall.RawConn
	done   chan struct{}

	// Owned by the loop's goroutine.
	table  []entry
	events [256]unix.EpollEvent
	buf    []byte
	spare  [][]byte // buffers of links that flushed, for the next that block
	timers timers
	armed  int64 // the deadline set on file, 0 if none
	now    int64
	stop   bool
	more   bool // something ready may have been left behind: poll again before parking

	links atomic.Int64

	mu sync.Mutex
	// Guarded by mu.
	tasks []func()
	ended bool
}

// NewLoop makes a loop; Run serves it.
func NewLoop(cfg Config) (*Loop, error) {
	cfg = cfg.withDefaults()
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("relay: epoll_create1: %w", err)
	}
	wakefd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		_ = unix.Close(epfd)
		return nil, fmt.Errorf("relay: eventfd: %w", err)
	}
	// os.NewFile puts only non-blocking descriptors into Go's poller.
	if err := unix.SetNonblock(epfd, true); err != nil {
		return nil, errors.Join(fmt.Errorf("relay: epoll descriptor: %w", err), unix.Close(epfd), unix.Close(wakefd))
	}
	file := os.NewFile(uintptr(epfd), "epoll")
	rc, err := file.SyscallConn()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("relay: epoll descriptor: %w", err), file.Close(), unix.Close(wakefd))
	}
	l := &Loop{cfg: cfg, epfd: epfd, wakefd: int32(wakefd), file: file, rc: rc, done: make(chan struct{}), buf: make([]byte, cfg.BufferSize)}
	l.now = cfg.Now()
	if err := l.add(l.wakefd, l, 0, unix.EPOLLIN); err != nil {
		return nil, errors.Join(err, file.Close(), unix.Close(wakefd))
	}
	return l, nil
}

// Links is how many links the loop has. Any goroutine may ask.
func (l *Loop) Links() int64 { return l.links.Load() }

// Now is the time of the batch of events that is being handled. Only on the loop.
func (l *Loop) Now() int64 { return l.now }

// Do runs f on the loop's goroutine, soon. After the loop has ended f is dropped.
func (l *Loop) Do(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended { // its descriptor's number may be somebody else's by now
		return
	}
	l.tasks = append(l.tasks, f)
	if len(l.tasks) == 1 {
		one := [8]byte{1}
		_, _ = unix.Write(int(l.wakefd), one[:])
	}
}

// After runs f on the loop once d has passed. Only on the loop.
func (l *Loop) After(d time.Duration, f func()) {
	l.timers.set(&timer{idx: -1, fn: f}, l.now+int64(d))
}

// Close ends Run once the tasks given before it are done, and waits for that. Links still open are the caller's to close first.
func (l *Loop) Close() {
	l.Do(func() { l.stop = true })
	<-l.done
}

// Run serves the loop until Close. It must have its own goroutine.
//
// The whole life of the loop is one Read of the epoll descriptor: serve polls, handles the batch and parks without polling
// again; polling until empty costs 6 to 12 % more per request. No wake-up is lost by that: the runtime consumes the readiness
// of before when it calls serve, so an edge that comes meanwhile makes the next park return at once. But not everything
// that is ready gives an edge, so whatever may leave something behind must set more: a full batch, a full read buffer, a
// FIN or error behind the bytes read, a full accept batch, and every change of interest (a descriptor that is still on the
// ready list from the last poll is not announced again when its new interest is met already: ep_modify in the kernel).
func (l *Loop) Run() {
	defer close(l.done)
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.ended = true
		_ = l.file.Close()
		_ = unix.Close(int(l.wakefd))
	}()
	for !l.stop {
		if err := l.rc.Read(l.serve); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		// The deadline has passed, or the loop is to stop. The descriptor can't be read again before it has a new one.
		l.now = l.cfg.Now()
		l.runTimers()
		l.armed = -1
		l.arm()
	}
}

// serve handles what is ready and says whether the loop is over.
func (l *Loop) serve(uintptr) bool {
	for {
		n := rawEpollWait(l.epfd, l.events[:])
		l.now = l.cfg.Now()
		l.more = n == len(l.events)
		for i := range n {
			ev := &l.events[i]
			if int(ev.Fd) >= len(l.table) {
				continue
			}
			if e := l.table[ev.Fd]; e.h != nil && e.gen == ev.Pad {
				e.h.event(e.slot, ev.Events)
			}
		}
		l.runTimers()
		if l.stop || !l.more {
			break
		}
	}
	l.arm()
	return l.stop
}

func (l *Loop) runTimers() {
	for t := l.timers.due(l.now); t != nil; t = l.timers.due(l.now) {
		t.fn()
	}
}

// arm sets the descriptor's read deadline to the first timer.
func (l *Loop) arm() {
	var when int64
	if len(l.timers) > 0 {
		when = l.timers[0].when
	}
	if when == l.armed {
		return
	}
	l.armed = when
	if when == 0 {
		_ = l.file.SetReadDeadline(time.Time{})
		return
	}
	_ = l.file.SetReadDeadline(time.Now().Add(time.Duration(when - l.cfg.Now())))
}

// event of the loop itself: the mailbox.
func (l *Loop) event(int, uint32) {
	var b [8]byte
	_, _ = unix.Read(int(l.wakefd), b[:])
	l.mu.Lock()
	tasks := l.tasks
	l.tasks = nil
	l.mu.Unlock()
	for _, f := range tasks {
		f()
	}
}

func (l *Loop) add(fd int32, h handler, slot int, events uint32) error {
	for int(fd) >= len(l.table) {
		l.table = append(l.table, make([]entry, 64+len(l.table)/2)...)
	}
	l.more = true
	e := &l.table[fd]
	e.h, e.slot = h, slot
	e.gen++
	ev := unix.EpollEvent{Events: events, Fd: fd, Pad: e.gen}
	if errno := rawEpollCtl(l.epfd, unix.EPOLL_CTL_ADD, fd, &ev); errno != 0 {
		e.h = nil
		return fmt.Errorf("relay: epoll_ctl add: %w", errno)
	}
	return nil
}

func (l *Loop) modify(fd int32, events uint32) {
	l.more = true
	ev := unix.EpollEvent{Events: events, Fd: fd, Pad: l.table[fd].gen}
	_ = rawEpollCtl(l.epfd, unix.EPOLL_CTL_MOD, fd, &ev)
}

// forget takes a descriptor off the table that is about to be closed: closing takes it out of epoll by itself.
func (l *Loop) forget(fd int32) { l.table[fd].h = nil }

func (l *Loop) remove(fd int32) {
	if l.table[fd].h == nil {
		return
	}
	l.table[fd].h = nil
	_ = rawEpollCtl(l.epfd, unix.EPOLL_CTL_DEL, fd, nil)
}

// maxSpare bounds the buffers that a loop keeps for reuse.
const maxSpare = 8

func (l *Loop) takeBuffer() []byte {
	if n := len(l.spare); n > 0 {
		b := l.spare[n-1]
		l.spare = l.spare[:n-1]
		return b
	}
	return make([]byte, 0, 16<<10)
}

func (l *Loop) giveBuffer(b []byte) {
	if len(l.spare) < maxSpare && cap(b) <= 2*l.cfg.BufferSize {
		l.spare = append(l.spare, b[:0])
	}
}
