package proxy

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/lastcall-proxy/lastcall/proxy/config"
	"github.com/lastcall-proxy/lastcall/proxy/relay"
	"github.com/lastcall-proxy/lastcall/tracker"
)

// ErrUnknownConnection is returned for an id that is not open.
var ErrUnknownConnection = errors.New("proxy: no such open connection")

// Config sets up a Server.
type Config struct {
	Settings    *config.Config
	Registry    *tracker.Registry // with as many shards as Loops
	Loops       int
	Logger      *zap.Logger
	ReloadEvery time.Duration // how often certificate files are looked at; default 10s
	Unobserved  bool          // relay without observers: for the benchmark of what observing costs
}

// Server relays connections until it is closed.
type Server struct {
	// Immutable.
	cfg      Config
	probes   [][]byte
	scrapers [][]byte
	workers  []*worker
	limit    int64

	conns atomic.Int64
	held  atomic.Int64 // silenced by a rehearsal
	wg    sync.WaitGroup

	// Owned by the first worker's loop.
	listeners []*relay.Listener
	closed    bool

	// Immutable after Listen.
	addrs   []string
	planned []*listener
}

// Loops is how many event loops a server uses when it is not told: one is enough for one app; more than four only add wake-ups.
func Loops(asked int) int {
	if asked > 0 {
		return asked
	}
	return min(runtime.GOMAXPROCS(0), 4)
}

// New makes a server; Listen starts it.
func New(cfg Config) (*Server, error) {
	s := &Server{cfg: cfg, limit: int64(cfg.Settings.MaxConnections)}
	for _, p := range cfg.Settings.Probes {
		s.probes = append(s.probes, []byte(p))
	}
	for _, p := range cfg.Settings.Scrapers {
		s.scrapers = append(s.scrapers, []byte(p))
	}
	if s.limit <= 0 {
		s.limit = descriptorLimit()
	}
	cfg.Registry.ExpectDialErrors(append(dialReasons(), "accept_paused"))
	for i := range cfg.Loops {
		loop, err := relay.NewLoop(relay.Config{DialTimeout: cfg.Settings.DialTimeout, Now: cfg.Registry.Now, Prepare: prepare(cfg.Settings)})
		if err != nil {
			s.Close()
			return nil, fmt.Errorf("proxy: loop %d: %w", i, err)
		}
		w := &worker{srv: s, loop: loop, shard: cfg.Registry.Shard(i), now: loop.Now, sessions: make(map[uint64]*session)}
		s.workers = append(s.workers, w)
		s.wg.Go(loop.Run)
		if idle := cfg.Settings.IdleTimeout; idle > 0 {
			loop.Do(func() { w.sweep(idle) })
		}
	}
	return s, nil
}

// reservedDescriptors are left for listeners, admin and files when the connection limit comes from the process's own.
const reservedDescriptors = 128

func descriptorLimit() int64 {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		return 1 << 20
	}
	return max(16, (int64(min(lim.Cur, 1<<31))-reservedDescriptors)/2)
}

func (s *Server) full(err syscall.Errno) {
	s.workers[0].shard.DialError("accept_paused")
	s.cfg.Logger.Warn("accept paused", zap.Error(err))
}

// each runs f on every loop and waits for none.
func (s *Server) each(f func(w *worker)) {
	for _, w := range s.workers {
		w.loop.Do(func() { f(w) })
	}
}

// CloseListeners accepts what waits in the queues, then closes every listener.
func (s *Server) CloseListeners() {
	w := s.workers[0]
	w.loop.Do(func() {
		for _, ln := range s.listeners {
			ln.Close()
		}
		s.listeners = nil
	})
}

// Close cuts what is still open and ends the loops.
func (s *Server) Close() {
	if len(s.workers) == 0 {
		return
	}
	s.workers[0].loop.Do(func() { s.closed = true })
	s.CloseListeners()
	s.Cut()
	for _, w := range s.workers {
		w.loop.Close()
	}
	s.wg.Wait()
	for _, l := range s.planned {
		l.closeTLS()
	}
}

// CloseConn ends one connection for an operator: politely, or at once.
func (s *Server) CloseConn(id uint64, polite bool) error {
	found := make(chan bool, len(s.workers))
	s.each(func(w *worker) {
		k := w.sessions[id]
		found <- k != nil
		switch {
		case k == nil:
		case polite:
			k.endPolitely(tracker.Kicked, tracker.ByOperator, kickedReason)
		default:
			k.kill(tracker.End{Fate: tracker.Kicked, By: tracker.ByOperator, How: tracker.HowRST, Reason: kickedReason})
		}
	})
	wait := time.NewTimer(time.Second)
	defer wait.Stop()
	for range s.workers {
		select {
		case ok := <-found:
			if ok {
				return nil
			}
		case <-wait.C:
			return ErrUnknownConnection
		}
	}
	return ErrUnknownConnection
}
