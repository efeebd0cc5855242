package load

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// overseer looks after a load's sessions: one goroutine for all of them, since a goroutine and a ticker for each are 30 MiB for
// 7000 sessions, and a tenth of a core.
type overseer struct {
	limit time.Duration
	mu    sync.Mutex
	all   map[*overseen]struct{}
}

// overseen is a session with its numbers.
type overseen struct {
	session session
	numbers *numbers
	hung    atomic.Bool // it was ended for having fallen silent
}

func (o *overseer) add(x *overseen) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all[x] = struct{}{}
}

func (o *overseer) remove(x *overseen) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.all, x)
}

// run ends sessions whose servers have fallen silent, until ctx is over.
func (o *overseer) run(ctx context.Context) {
	for sleep(ctx, min(o.limit/4, time.Second)) {
		o.mu.Lock()
		for x := range o.all {
			if !x.hung.Load() && x.silent(o.limit) {
				x.hung.Store(true)
				go x.session.abort() // a close may wait for the server, too
			}
		}
		o.mu.Unlock()
	}
}

func (x *overseen) silent(limit time.Duration) bool {
	return x.numbers.owed() > limit || x.session.listens() && x.numbers.silent(limit) && quiet(x.session) > limit
}

// finish ends the session when the load is over, politely if the server lets it: answers that are due are waited for.
func (x *overseen) finish(limit time.Duration, done, sender <-chan struct{}) {
	n, s := x.numbers, x.session
	for began := time.Now(); (n.owed() > 0 || !isClosed(sender)) && n.owed() < limit && time.Since(began) < limit; {
		select {
		case <-done:
			return
		case <-time.After(time.Millisecond):
		}
	}
	if n.owed() > 0 || !isClosed(sender) {
		x.hung.Store(true)
		s.abort()
		return
	}
	go s.close() // a close may wait for the server, too
	select {
	case <-done:
	case <-time.After(min(limit, goodbyeTime)):
		s.abort()
	}
}

// quiet is for how long nothing at all has come, comments that keep a connection alive among it.
func quiet(s session) time.Duration {
	if h, ok := s.(interface{ heardAt() time.Time }); ok {
		return time.Since(h.heardAt())
	}
	return math.MaxInt64
}

// goodbyeTime is how long a server gets to answer our own goodbye.
const goodbyeTime = 2 * time.Second
