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
	CloseIdle(id []uint64) // those of them that have nothing in flight leave
	End(id []uint64)       // polite ends
	Cut()                  // all that is left
	Serve()                // the drain was cancelled
}

// Config sets up a Controller.
type Config struct {
	Limits
	LateServe  bool // late arrivals are served
	LateRefuse bool // the listeners close when draining starts
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
	phase   tracker.Phase
	planned map[uint64]time.Time // when each connection is asked to leave in this phase
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
			c.phase, c.planned = tracker.Serving, nil
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
	switch c.phase {
	case tracker.Draining:
		c.leave(now, false, idleWindow, c.actor.CloseIdle)
	case tracker.Closing:
		// Four fifths of the window: a Close still needs its way to the peer and back.
		c.leave(now, true, (c.cfg.Deadline-c.cfg.Closing)*4/5-(elapsed-c.cfg.Closing), c.actor.End)
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
	c.phase, c.planned = p, make(map[uint64]time.Time)
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

// leave plans a departure for each open connection that has none, and asks those to leave whose time has come. Connections
// with long-lived streams come first when all must go.
func (c *Controller) leave(now time.Time, all bool, window time.Duration, ask func([]uint64)) {
	var fresh, later []uint64
	c.reg.Connections(func(id uint64, idle, longLived bool) {
		switch _, known := c.planned[id]; {
		case known || (!all && !idle):
		case longLived:
			fresh = append(fresh, id)
		default:
			later = append(later, id)
		}
	})
	fresh = append(fresh, later...)
	for i, d := range pace(len(fresh), max(window, 0), c.cfg.Rand) {
		c.planned[fresh[i]] = now.Add(d)
	}
	var due []uint64
	for id, at := range c.planned {
		if !at.IsZero() && !at.After(now) {
			due = append(due, id)
			if all {
				c.planned[id] = time.Time{} // asked once; its protocol may need time to find a boundary
			} else {
				delete(c.planned, id) // it may not be idle any more, and become so again
			}
		}
	}
	if len(due) > 0 {
		ask(due)
	}
}
