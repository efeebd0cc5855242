// Package rehearse ends, silences or refuses connections so that their clients' coming back can be watched, while the
// sidecar goes on serving. It knows the registry's phase, no protocol and no socket.
package rehearse

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lastcall-proxy/lastcall/tracker"
)

// Actor does it to connections. Its methods return how many they could do it to.
type Actor interface {
	Kick(ids []uint64, polite bool) int // ends them
	Part(ids []uint64) int              // tells their clients to go elsewhere with what is new
	Hold(ids []uint64) int              // silences them both ways
	Release(ids []uint64) int           // undoes Hold
	Held() int                          // silenced now
	RefuseNew(on bool)                  // for connections to come
}

// Mode is what is done.
type Mode string

// The modes.
const (
	Polite    Mode = "polite"     // each protocol's own end
	GoAway    Mode = "goaway"     // HTTP/2 GOAWAY, HTTP/1 Connection: close; what is in flight runs on
	Reset     Mode = "reset"      // RST
	HalfOpen  Mode = "half-open"  // no byte moves for Hold, both sockets stay open
	RefuseNew Mode = "refuse-new" // polite, and new connections are refused for Hold
)

// Modes are all of them.
func Modes() []Mode { return []Mode{Polite, GoAway, Reset, HalfOpen, RefuseNew} }

// Bounds of a plan.
const (
	MaxConnections = 20_000
	MaxHold        = 10 * time.Minute
	MaxOver        = time.Hour
)

// Plan says what to do.
type Plan struct {
	Mode        Mode
	Connections []uint64      // in the order in which they are taken
	Over        time.Duration // they are taken one by one over this time, evenly; 0: at once
	Hold        time.Duration // how long half-open and refuse-new last, for each connection or after the last
}

// Errors of Start and Cancel.
var (
	ErrDraining   = errors.New("rehearse: a drain is under way")
	ErrRunning    = errors.New("rehearse: another rehearsal is under way")
	ErrNotRunning = errors.New("rehearse: no rehearsal is under way")
)

// PlanError names the field of a plan that can't be done.
type PlanError struct{ Field, Message string }

func (e *PlanError) Error() string { return e.Field + ": " + e.Message }

func (p *Plan) check() error {
	holds := p.Mode == HalfOpen || p.Mode == RefuseNew
	switch {
	case !slices.Contains(Modes(), p.Mode):
		return &PlanError{"mode", fmt.Sprintf("%q: want one of %v", p.Mode, Modes())}
	case len(p.Connections) == 0:
		return &PlanError{"connections", "none given"}
	case len(p.Connections) > MaxConnections:
		return &PlanError{"connections", fmt.Sprintf("%d: at most %d", len(p.Connections), MaxConnections)}
	case p.Over < 0 || p.Over > MaxOver:
		return &PlanError{"over_s", fmt.Sprintf("want 0 to %v", MaxOver)}
	case holds && (p.Hold <= 0 || p.Hold > MaxHold):
		return &PlanError{"hold_s", fmt.Sprintf("%s wants a time, up to %v", p.Mode, MaxHold)}
	case !holds && p.Hold != 0:
		return &PlanError{"hold_s", fmt.Sprintf("%s takes none", p.Mode)}
	}
	return nil
}

// State is a rehearsal as it stands, or the last one.
type State struct {
	ID       int       // counts from 1; 0: there was none
	Mode     Mode      // ""
	Status   Status    //
	Reason   string    // why it was cancelled
	Started  time.Time // zero: there was none
	Until    time.Time // when it is over if nobody cancels it
	Picked   int       // connections of the plan
	Taken    int       // those it was done to
	Missed   int       // those that were gone, or whose protocol has no word for it
	Held     int       // silenced now
	Refusing bool      // new connections are refused now
}

// Status is where a rehearsal is.
type Status string

// Statuses.
const (
	Idle      Status = "idle"
	Running   Status = "running"
	Over      Status = "over"
	Cancelled Status = "cancelled"
)

// Controller runs one rehearsal at a time.
type Controller struct {
	reg   *tracker.Registry
	actor Actor

	wg sync.WaitGroup
	mu sync.Mutex
	// Guarded by mu.
	state  State
	cancel context.CancelCauseFunc // of the running one
	ended  chan struct{}           // closed when the running one has undone what it did
}

// New makes a controller.
func New(reg *tracker.Registry, a Actor) *Controller {
	return &Controller{reg: reg, actor: a, state: State{Status: Idle}}
}

// State gives the rehearsal as it stands.
func (c *Controller) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.state
	s.Held = c.actor.Held()
	return s
}

// Start begins a rehearsal and returns at once.
func (c *Controller) Start(p Plan) (State, error) {
	if err := p.check(); err != nil {
		return State{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reg.Phase() != tracker.Serving {
		return c.state, ErrDraining
	}
	if c.state.Status == Running {
		return c.state, ErrRunning
	}
	now := time.Now()
	ctx, cancel := context.WithCancelCause(context.Background())
	c.cancel, c.ended = cancel, make(chan struct{})
	c.state = State{ID: c.state.ID + 1, Mode: p.Mode, Status: Running, Started: now, Until: now.Add(p.Over + p.Hold), Picked: len(p.Connections)}
	ended := c.ended
	c.wg.Go(func() {
		defer close(ended)
		c.run(ctx, p, now)
	})
	return c.state, nil
}

// Cancel stops a rehearsal, undoes its silences and refusals, and returns when that is done. What was ended stays ended.
func (c *Controller) Cancel(reason string) error {
	c.mu.Lock()
	if c.state.Status != Running {
		c.mu.Unlock()
		return ErrNotRunning
	}
	cancel, ended := c.cancel, c.ended
	c.mu.Unlock()
	cancel(errors.New(reason))
	<-ended
	return nil
}

// Close cancels what runs and waits for it.
func (c *Controller) Close() {
	_ = c.Cancel("the sidecar ends")
	c.wg.Wait()
}

// step is something due at a time.
type step struct {
	at   time.Time
	ids  []uint64
	undo bool
}

// tick is how often the phase is looked at: a drain must not wait for a rehearsal.
const tick = 50 * time.Millisecond

func (c *Controller) run(ctx context.Context, p Plan, start time.Time) {
	steps := schedule(p, start)
	if p.Mode == RefuseNew {
		c.actor.RefuseNew(true)
		c.update(func(s *State) { s.Refusing = true })
	}
	until := start.Add(p.Over + p.Hold)
	look := time.NewTicker(tick)
	defer look.Stop()
	reason := ""
	for reason == "" {
		now := time.Now()
		for len(steps) > 0 && !steps[0].at.After(now) {
			c.do(p, steps[0])
			steps = steps[1:]
		}
		if len(steps) == 0 && !now.Before(until) {
			break
		}
		next := until
		if len(steps) > 0 {
			next = steps[0].at
		}
		t := time.NewTimer(time.Until(next))
		select {
		case <-ctx.Done():
			reason = context.Cause(ctx).Error()
		case <-t.C:
		case <-look.C:
			if c.reg.Phase() != tracker.Serving {
				reason = "a drain began"
			}
		}
		t.Stop()
	}
	if p.Mode == RefuseNew {
		c.actor.RefuseNew(false)
	}
	if p.Mode == HalfOpen {
		c.actor.Release(p.Connections)
	}
	c.update(func(s *State) {
		s.Status, s.Refusing, s.Reason = Over, false, reason
		if reason != "" {
			s.Status = Cancelled
		}
	})
}

func (c *Controller) update(f func(*State)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.state)
}

// schedule gives each connection its moment, and a silence its end.
func schedule(p Plan, start time.Time) []step {
	ids := p.Connections
	var steps []step
	if p.Over == 0 {
		steps = append(steps, step{at: start, ids: ids})
	} else {
		for i, id := range ids {
			steps = append(steps, step{at: start.Add(time.Duration(float64(p.Over) * float64(i) / float64(len(ids)))), ids: []uint64{id}})
		}
	}
	if p.Mode == HalfOpen {
		for _, s := range steps[:len(steps):len(steps)] {
			steps = append(steps, step{at: s.at.Add(p.Hold), ids: s.ids, undo: true})
		}
		slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(a.at.UnixNano(), b.at.UnixNano()) })
	}
	return steps
}

func (c *Controller) do(p Plan, s step) {
	n := 0
	switch {
	case s.undo:
		c.actor.Release(s.ids)
		return
	case p.Mode == GoAway:
		n = c.actor.Part(s.ids)
	case p.Mode == HalfOpen:
		n = c.actor.Hold(s.ids)
	default:
		n = c.actor.Kick(s.ids, p.Mode != Reset)
	}
	c.update(func(st *State) {
		st.Taken += n
		st.Missed += len(s.ids) - n
	})
}
