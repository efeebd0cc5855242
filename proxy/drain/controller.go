package drain

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lastcall-proxy/lastcall/tracker"
)

// Actor does what a drain wants. Its methods hand the work on and return at once.
type Actor interface {
	Farewell()             // every connection is told, at its next boundary
	Reject(refuse bool)    // late arrivals are refused; with refuse the listeners close
	CloseIdle(id []uint64) // those of them that have nothing in flight leave; there may be none
	End(id []uint64)       // polite ends; there may be none
	Cut()                  // all that is left
	Serve()                // the drain was cancelled
}

// Config sets up a Controller.
type Config struct {
	Limits
	LateServe  bool                    // late arrivals are served
	LateRefuse bool                    // the listeners close when draining starts
	Spread     bool                    // long-lived streams are ended from the start of draining on, not in the closing window only
	Progress   func(tracker.DrainView) // called every ProgressEvery of a drain; may be nil
	Rand       *rand.Rand
}

// ErrNotDraining and ErrTooLate are why a drain could not be cancelled.
var (
	ErrNotDraining = errors.New("drain: not draining")
	ErrTooLate     = errors.New("drain: connections are being cut already")
)

// doubled is how close a second signal may follow the first without meaning "now": an init that doubles signals is not a
// person.
const doubled = time.Second

// tick is how often the registry is looked at for connections that have become idle.
const tick = 100 * time.Millisecond

// ProgressEvery is how often a drain says how far it is.
const ProgressEvery = 5 * time.Second

// idleWindow is the time over which idle connections leave.
const idleWindow = time.Second

// Controller runs drains.
type Controller struct {
	// Immutable.
	cfg   Config
	reg   *tracker.Registry
	actor Actor
	wake  chan struct{}

	mu      sync.Mutex
	trigger string
	since   time.Time // of the trigger; zero while serving
	skip    bool      // straight to the cut
	done    chan struct{}

	// Owned by Run.
	phase tracker.Phase
	idle  map[uint64]time.Time // when each idle connection is asked to leave
	ends  map[uint64]time.Time // when each connection is ended politely; zero: it was
	said  time.Time            // last progress
}

// New makes a controller; Run serves it.
func New(cfg Config, reg *tracker.Registry, a Actor) *Controller {
	if cfg.Rand == nil {
		cfg.Rand = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	}
	return &Controller{cfg: cfg, reg: reg, actor: a, wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// Start begins a drain and says whether this call did: a second trigger changes nothing.
func (c *Controller) Start(trigger string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.since.IsZero() {
		return false
	}
	c.trigger, c.since = trigger, time.Now()
	c.poke()
	return true
}

// Signal begins a drain; during one, it skips to the cut unless it follows the trigger within a second.
func (c *Controller) Signal(trigger string) {
	if c.Start(trigger) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.since) >= doubled {
		c.skip = true
		c.poke()
	}
}

// Cancel goes back to serving while nothing was cut.
func (c *Controller) Cancel() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.since.IsZero():
		return ErrNotDraining
	case c.skip || c.reg.Phase() == tracker.Cutting:
		return ErrTooLate
	}
	c.since = time.Time{}
	c.poke()
	return nil
}

// Done is closed when the drain that is running, or the next one, has ended.
func (c *Controller) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.done
}

func (c *Controller) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Run serves until ctx ends.
func (c *Controller) Run(ctx context.Context) {
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		if c.phase == tracker.Serving || c.phase == tracker.Done { // nothing to look at until someone asks
			select {
			case <-ctx.Done():
				return
			case <-c.wake:
			}
		} else {
			select {
			case <-ctx.Done():
				return
			case <-c.wake:
			case <-c.reg.Changed():
			case <-t.C:
			}
		}
		c.step(time.Now())
	}
}

// step moves the drain to where it has to be now.
func (c *Controller) step(now time.Time) {
	c.mu.Lock()
	since, skip, trigger := c.since, c.skip, c.trigger
	c.mu.Unlock()
	if since.IsZero() {
		if c.phase != tracker.Serving {
			c.phase, c.idle, c.ends = tracker.Serving, nil, nil
			c.reg.CancelDrain()
			c.actor.Serve()
			c.mu.Lock()
			c.done = make(chan struct{})
			c.mu.Unlock()
		}
		return
	}
	if c.phase == tracker.Serving {
		c.phase = tracker.Lameduck
		at := c.reg.Now() - int64(now.Sub(since))
		c.reg.BeginDrain(trigger, at, at+int64(c.cfg.Deadline))
		c.actor.Farewell()
	}
	elapsed := now.Sub(since)
	if skip {
		elapsed = max(elapsed, c.cfg.Deadline)
	}
	left := c.reg.Remaining()
	want := phaseAt(c.cfg.Limits, elapsed, left.Connections == 0 && left.Streams == 0)
	if c.phase != tracker.Done && c.phase < want {
		c.enter(want)
	}
	if c.cfg.Progress != nil && c.phase != tracker.Done && now.Sub(c.said) >= ProgressEvery {
		c.said = now
		c.cfg.Progress(c.reg.Drain())
	}
	// Polite ends take four fifths of their time: a Close still needs its way to the peer and back.
	window := max(0, c.cfg.Deadline-(c.cfg.Deadline-c.cfg.Closing)/5-elapsed)
	switch c.phase {
	case tracker.Draining:
		c.plan(c.idle, now, idleWindow, func(idle, _ bool) bool { return idle })
		c.actor.CloseIdle(c.due(c.idle, now, false))
		if c.cfg.Spread {
			c.plan(c.ends, now, window, func(_, longLived bool) bool { return longLived })
			c.actor.End(c.due(c.ends, now, true))
		}
	case tracker.Closing:
		c.plan(c.ends, now, window, func(_, _ bool) bool { return true })
		c.actor.End(c.due(c.ends, now, true))
	case tracker.Cutting:
		if left.Connections == 0 || elapsed >= c.cfg.Deadline+time.Second {
			c.enter(tracker.Done)
		}
	case tracker.Serving, tracker.Lameduck, tracker.Done:
	}
}

func (c *Controller) enter(p tracker.Phase) {
	if c.phase == tracker.Lameduck && !c.cfg.LateServe {
		c.actor.Reject(c.cfg.LateRefuse)
	}
	if c.ends == nil {
		c.idle, c.ends = make(map[uint64]time.Time), make(map[uint64]time.Time)
	}
	if p == tracker.Closing {
		clear(c.ends) // what did not find a boundary yet is asked again
	}
	c.phase = p
	c.reg.SetPhase(p)
	switch p {
	case tracker.Cutting:
		c.actor.Cut()
	case tracker.Done:
		c.actor.Cut() // probes and scrapes do not hold a drain
		c.mu.Lock()
		close(c.done)
		c.mu.Unlock()
	case tracker.Serving, tracker.Lameduck, tracker.Draining, tracker.Closing:
	}
}

// plan gives each open connection that pick names, and that has none yet, its time within the window. Connections with
// long-lived streams come first.
func (c *Controller) plan(times map[uint64]time.Time, now time.Time, window time.Duration, pick func(idle, longLived bool) bool) {
	var first, later []uint64
	c.reg.Connections(func(id uint64, idle, longLived bool) {
		switch _, known := times[id]; {
		case known || !pick(idle, longLived):
		case longLived:
			first = append(first, id)
		default:
			later = append(later, id)
		}
	})
	// Clients that came together would leave, and come back, together.
	c.cfg.Rand.Shuffle(len(first), func(i, j int) { first[i], first[j] = first[j], first[i] })
	first = append(first, later...)
	for i, d := range pace(len(first), window, c.cfg.Rand) {
		times[first[i]] = now.Add(d)
	}
}

// due takes those whose time has come. With once they are never due again: their protocol may need time to find a
// boundary. Without it they may be planned again: an idle connection may not be idle any more, and become so again.
func (c *Controller) due(times map[uint64]time.Time, now time.Time, once bool) []uint64 {
	var due []uint64
	for id, at := range times {
		if at.IsZero() || at.After(now) {
			continue
		}
		due = append(due, id)
		if once {
			times[id] = time.Time{}
		} else {
			delete(times, id)
		}
	}
	return due
}
