package rehearse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"
)

// ErrNothing says that there is nothing to take.
var ErrNothing = errors.New("no open stream of these kinds at the sidecar")

// ErrWantsYes says that more would be taken than goes without a person's word.
var ErrWantsYes = errors.New("--yes is needed")

// settle is how long the books get after the last moment that is watched: events come in batches.
const settle = 200 * time.Millisecond

// undoTime bounds the undoing when everything else was interrupted.
const undoTime = 5 * time.Second

// Run carries out a plan. When ctx ends it undoes silences and refusals and gives what it has, as partial. The error is for
// what could not be begun.
func Run(ctx context.Context, p *Plan, progress io.Writer) (*Result, error) {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(progress, format+"\n", args...) }
	keep := context.WithoutCancel(ctx)
	var all []*watched
	for i, addr := range append([]string{p.Sidecar}, p.Landing...) {
		flag := "--sidecar"
		if i > 0 {
			flag = "--landing"
		}
		s, err := watch(ctx, flag, addr, p.TokenFile)
		if err != nil {
			return nil, err
		}
		defer s.close()
		all = append(all, s)
	}
	at := all[0]
	open, err := at.open(ctx, true)
	if err != nil {
		return nil, err
	}
	conns, streams, of, others := pick(open, p, rand.Shuffle)
	res := &Result{Schema: Schema, Verdict: "none", Streams: of, Others: others, Picked: len(streams), Conns: len(conns), Limits: []Judged{}, Clients: []Client{}, Classes: []Group{}, Advice: []string{},
		Plan: Told{Sidecar: p.Sidecar, Landing: append([]string{}, p.Landing...), Mode: p.Mode, Kinds: p.Kinds, Share: p.Share, OverS: p.Over.Seconds(), HoldS: p.Hold.Seconds(), WatchS: p.Watch.Seconds(), Identity: p.Identity}}
	if len(streams) == 0 {
		return nil, fmt.Errorf("%w (%s)", ErrNothing, strings.Join(p.Kinds, ", "))
	}
	if share := float64(len(streams)) / float64(of); share > asksFrom && !p.Yes && !p.DryRun {
		return nil, fmt.Errorf("%w: the smallest pick is %d of %d streams, %.1f %%", ErrWantsYes, len(streams), of, share*100)
	}
	if p.DryRun {
		say("would take %d of %d streams on %d connections by %s", len(streams), of, len(conns), p.Mode)
		res.Reason = "dry run"
		return res, nil
	}
	clients, nobody := p.newClients(streams)
	if nobody > 0 {
		return nil, fmt.Errorf("--identity identity: %d of the %d picked streams have none", nobody, len(streams))
	}
	var st state
	// Not with ctx: an interrupt in the middle of this call must not leave anybody in doubt whether it has begun.
	if err := at.call(keep, "POST", "/v1/rehearsal", map[string]any{"mode": p.Mode, "connections": conns, "over_s": p.Over.Seconds(), "hold_s": p.Hold.Seconds()}, &st); err != nil {
		return nil, err
	}
	start, ours := st.StartedAt, st.ID
	res.Started = start.Format(time.RFC3339Nano)
	say("taking %d of %d streams on %d connections by %s; watching until %s", len(streams), of, len(conns), p.Mode, start.Add(p.Over+p.Hold+p.Watch).Format(time.TimeOnly))
	whole := wait(ctx, p, all, start, say)
	if !whole {
		undo(keep, at, ours, say)
	}
	end := time.Now()
	time.Sleep(settle)
	last, stop := context.WithTimeout(keep, undoTime)
	defer stop()
	if err := at.call(last, "GET", "/v1/rehearsal", nil, &st); err == nil && st.ID == ours { // it may be another's already
		res.Missed = st.Missed
		if st.Status == "cancelled" && whole {
			whole, res.Reason = false, "the sidecar broke it off: "+st.Reason
		}
	}
	for _, s := range all {
		s.mu.Lock()
		if s.lost != nil && res.Reason == "" {
			whole, res.Reason = false, fmt.Sprintf("sidecar %s is %v", s.Addr, s.lost)
		}
		s.mu.Unlock()
	}
	seen, missed, err := collect(last, all)
	if err != nil {
		whole, res.Reason = false, err.Error()
	}
	res.Unseen, res.Partial = missed, !whole
	date(clients, seen, conns, p, start)
	res.Shared = p.match(clients, seen)
	res.fill(clients, start, end.Sub(start), whole)
	if err := at.call(last, "POST", "/v1/rehearsal/outcomes", res.All.Outcomes, nil); err != nil {
		say("the sidecar's metrics don't have it: %v", err)
	}
	if whole {
		res.judge(p.Limits)
	} else if res.Reason == "" {
		res.Reason = "interrupted"
	}
	return res, nil
}

// wait waits for the end. False: it was interrupted, or a sidecar went or is about to.
func wait(ctx context.Context, p *Plan, all []*watched, start time.Time, say func(string, ...any)) bool {
	end := time.NewTimer(time.Until(start.Add(p.Over + p.Hold + p.Watch)))
	defer end.Stop()
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			say("interrupted")
			return false
		case <-end.C:
			return true
		case <-look.C:
			for _, s := range all {
				s.mu.Lock()
				lost := s.lost
				s.mu.Unlock()
				if lost != nil {
					say("sidecar %s is %v", s.Addr, lost)
					return false
				}
			}
		}
	}
}

// undo takes silences and refusals back.
func undo(ctx context.Context, at *watched, ours int, say func(string, ...any)) {
	ctx, stop := context.WithTimeout(ctx, undoTime)
	defer stop()
	var st state
	if err := at.call(ctx, "GET", "/v1/rehearsal", nil, &st); err != nil {
		say("not undone: %v", err)
		return
	}
	if st.Status != "running" || st.ID != ours {
		return
	}
	if err := at.call(ctx, "DELETE", fmt.Sprintf("/v1/rehearsal?id=%d", ours), nil, &st); err != nil {
		say("not undone: %v (the sidecar ends it by itself)", err)
		return
	}
	say("undone: %d connections are silent, new ones refused: %v", st.Held, st.Refusing)
}

// newClients makes one for each stream; of those that are sent away, one for each connection.
func (p *Plan) newClients(streams []record) (clients []*client, nobody int) {
	seen := map[string]bool{}
	for _, r := range streams {
		if p.Mode == "goaway" && seen[r.conn] {
			continue
		}
		seen[r.conn] = true
		c := &client{key: p.key(&r), kind: r.kind, from: r}
		if c.key == "" {
			nobody++
		}
		clients = append(clients, c)
	}
	return clients, nobody
}

// collect gives every record that the sidecars told of: what ended and what is open.
func collect(ctx context.Context, all []*watched) (seen []record, missed uint64, err error) {
	for _, s := range all {
		open, oerr := s.open(ctx, true)
		err = errors.Join(err, oerr)
		s.mu.Lock()
		seen = append(seen, s.ended...)
		missed += s.missed
		s.mu.Unlock()
		seen = append(seen, open...)
		conns, oerr := s.open(ctx, false)
		err = errors.Join(err, oerr)
		seen = append(seen, conns...)
	}
	dialled := map[string]time.Time{}
	for i := range seen {
		if r := &seen[i]; !r.stream {
			dialled[r.sidecar+" "+r.conn] = r.opened
		}
	}
	for i := range seen {
		if r := &seen[i]; r.stream {
			r.dialled = dialled[r.sidecar+" "+r.conn]
		}
	}
	return seen, missed, err
}

// date says for each client when its stream was taken, and when its old connection was over.
func date(clients []*client, seen []record, conns []string, p *Plan, start time.Time) {
	turn := map[string]time.Time{}
	for i, c := range conns {
		turn[c] = start.Add(time.Duration(float64(p.Over) * float64(i) / float64(len(conns))))
	}
	streams, over, open := map[string]*record{}, map[string]*record{}, map[string]bool{}
	for i := range seen {
		switch r := &seen[i]; {
		case r.sidecar != p.Sidecar:
		case r.fate == "":
			open[r.id] = true
		case r.stream:
			streams[r.id] = r
		default:
			over[r.id] = r
		}
	}
	for _, c := range clients {
		c.taken = turn[c.from.conn]
		s := streams[c.from.id]
		if s != nil && p.Mode != "half-open" && p.Mode != "goaway" && s.ended.After(c.taken) {
			c.taken = s.ended
		}
		if o := over[c.from.conn]; o != nil {
			c.left = o.ended
		} else if s != nil {
			c.left = s.ended
		} else if !open[c.from.id] { // its end was among the events that were missed
			c.left = c.taken
		}
	}
}
