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

// cutTime is how long the loops have for what was cut.
const cutTime = time.Second

// idleWindow is the time over which idle connections leave, or a quarter of what is left if that is less.
const idleWindow = time.Second

// Controller runs drains.
type Controller struct {
	// Immutable.
	cfg   Config
	reg   *tracker.Registry
	actor Actor
	wake  chan struct{}

	mu        sync.Mutex // held for a whole step, so that a cancel finds a drain either before its cut or after it
	phase     tracker.Phase
	since     time.Time // of the trigger; zero while serving
	signalled time.Time // the first signal of this drain, which may have come after its trigger
	giveUp    time.Time // when what does not even leave at the cut is waited for no more
	done      chan struct{}
	idle      map[uint64]time.Time // when each idle connection is asked to leave
	ends      map[uint64]time.Time // when each connection is ended politely; zero: it was
	said      time.Time            // last progress
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
	return c.begin(trigger, time.Now())
}

// Signal begins a drain. A second signal skips to the cut unless it follows the first within a second. One that follows
// another trigger is a first one: a pod's end sends SIGTERM behind the preStop hook, and nobody is impatient then.
func (c *Controller) Signal(trigger string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.begin(trigger, now)
	switch {
	case c.signalled.IsZero():
		c.signalled = now
	case now.Sub(c.signalled) >= doubled && c.phase < tracker.Cutting:
		c.enter(tracker.Cutting, now)
		c.poke()
	}
}

// Cancel goes back to serving, but for a drain that is cutting.
func (c *Controller) Cancel() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.phase {
	case tracker.Serving:
		return ErrNotDraining
	case tracker.Cutting:
		return ErrTooLate
	case tracker.Done:
		c.done = make(chan struct{}) // otherwise whoever waits already waits for the next drain's end
	case tracker.Lameduck, tracker.Draining, tracker.Closing:
	}
	c.phase, c.since, c.signalled, c.giveUp, c.said = tracker.Serving, time.Time{}, time.Time{}, time.Time{}, time.Time{}
	c.idle, c.ends = nil, nil
	c.reg.CancelDrain()
	c.actor.Serve()
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
		var look <-chan time.Time
		var changed <-chan struct{}
		if c.running() { // otherwise there is nothing to look at until someone asks
			look, changed = t.C, c.reg.Changed()
		}
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		case <-changed:
		case <-look:
		}
		// Outside of the lock: a slow log must not hold up who starts or cancels a drain.
		if c.step(time.Now()) && c.cfg.Progress != nil {
			c.cfg.Progress(c.reg.Drain())
		}
	}
}

func (c *Controller) running() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.phase != tracker.Serving && c.phase != tracker.Done
}

// begin starts a drain while serving, at once: whoever asked finds it begun.
func (c *Controller) begin(trigger string, now time.Time) bool {
	if c.phase != tracker.Serving {
		return false
	}
	c.phase, c.since = tracker.Lameduck, now
	at := c.reg.Now()
	c.reg.BeginDrain(trigger, at, at+int64(c.cfg.Deadline))
	c.actor.Farewell()
	c.poke()
	return true
}

// step moves the drain to where it has to be now, and says whether it is time to tell how far it is.
func (c *Controller) step(now time.Time) (tell bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase == tracker.Serving || c.phase == tracker.Done {
		return false
	}
	elapsed := now.Sub(c.since)
	left := c.reg.Remaining()
	if c.phase < tracker.Cutting {
		if want := phaseAt(c.cfg.Limits, elapsed, left.Connections == 0 && left.Streams == 0); c.phase < want {
			c.enter(want, now)
		}
	}
	window := max(0, c.cfg.Deadline-c.cfg.answerTime()-elapsed)
	switch c.phase {
	case tracker.Draining:
		c.plan(c.idle, now, min(idleWindow, (c.cfg.Deadline-elapsed)/4), func(idle, _ bool) bool { return idle })
		c.actor.CloseIdle(c.due(c.idle, now, false))
		if c.cfg.Spread {
			c.plan(c.ends, now, window, func(_, longLived bool) bool { return longLived })
			c.actor.End(c.due(c.ends, now, true))
		}
	case tracker.Closing:
		c.plan(c.ends, now, window, func(_, _ bool) bool { return true })
		c.actor.End(c.due(c.ends, now, true))
	case tracker.Cutting:
		if left.Connections == 0 || !now.Before(c.giveUp) {
			c.enter(tracker.Done, now)
		}
	case tracker.Serving, tracker.Lameduck, tracker.Done:
	}
	tell = c.phase != tracker.Done && now.Sub(c.said) >= ProgressEvery
	if tell {
		c.said = now
	}
	return tell
}

// answerTime is what polite ends leave of the closing window: a Close still needs its way to the peer and back, and a busy
// client that goes on sending after our socket is closed gets a reset, and may lose the status that it has not read yet.
func (c Config) answerTime() time.Duration {
	window := c.Deadline - c.Closing
	return max(window/5, min(window/2, time.Second)) // a second is the relay's linger
}

func (c *Controller) enter(p tracker.Phase, now time.Time) {
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
		c.giveUp = now.Add(cutTime)
		c.actor.Cut()
	case tracker.Done:
		c.actor.Cut() // probes and scrapes do not hold a drain
		close(c.done)
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
