package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lastcall-proxy/lastcall/proxy/rehearse"
	"github.com/lastcall-proxy/lastcall/tracker"
	"github.com/lastcall-proxy/lastcall/tracker/admin"
)

// StartRehearsal is admin.Rehearser's.
func (c controls) StartRehearsal(p *admin.RehearsalPlan) (admin.Rehearsal, error) {
	plan := rehearse.Plan{Mode: rehearse.Mode(p.Mode), Over: seconds(p.Over), Hold: seconds(p.Hold)}
	for i, s := range p.Connections {
		id, err := strconv.ParseUint(strings.TrimPrefix(s, "c"), 10, 64)
		if err != nil {
			return admin.Rehearsal{}, fmt.Errorf("%w: connections[%d] %q: want c42 or 42", admin.ErrBadPlan, i, s)
		}
		plan.Connections = append(plan.Connections, id)
	}
	s, err := c.rehearse.Start(plan)
	var bad *rehearse.PlanError
	switch {
	case errors.As(err, &bad):
		return admin.Rehearsal{}, fmt.Errorf("%w: %w", admin.ErrBadPlan, err)
	case err != nil:
		return admin.Rehearsal{}, fmt.Errorf("%w: %w", admin.ErrConflict, err)
	}
	return rehearsal(s), nil
}

// CancelRehearsal is admin.Rehearser's.
func (c controls) CancelRehearsal() (admin.Rehearsal, error) {
	if err := c.rehearse.Cancel("asked for through the API"); err != nil {
		return admin.Rehearsal{}, fmt.Errorf("%w: %w", admin.ErrConflict, err)
	}
	return c.Rehearsal(), nil
}

// Rehearsal is admin.Rehearser's.
func (c controls) Rehearsal() admin.Rehearsal { return rehearsal(c.rehearse.State()) }

func rehearsal(s rehearse.State) admin.Rehearsal {
	out := admin.Rehearsal{ID: s.ID, Mode: string(s.Mode), Status: string(s.Status), Reason: s.Reason, Picked: s.Picked, Taken: s.Taken, Missed: s.Missed, Held: s.Held, Refusing: s.Refusing}
	if !s.Started.IsZero() {
		out.StartedAt, out.Until = new(tracker.Time(s.Started.UnixNano())), new(tracker.Time(s.Until.UnixNano()))
	}
	return out
}

// seconds are bounded by the plan's own check; what is no time at all becomes one that it refuses.
func seconds(v float64) time.Duration {
	if !(v >= 0) || v > 1e6 {
		return -1
	}
	return time.Duration(v * float64(time.Second))
}
