package load

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// session is one long-lived exchange. send and recv are called by one goroutine each.
type session interface {
	// send writes message n; sessions that only listen have none (listens).
	send(n uint64) error
	// recv waits for the next message and gives its number, or how the session ended.
	recv() (n uint64, err error)
	listens() bool
	// collects says that the server answers once, at the end, with the number of messages that it has taken, or allOfThem.
	collects() bool
	// ending turns recv's error into an outcome. owed says that an answer was due.
	ending(err error, owed bool) (Outcome, string)
	local() string
	// close ends the session politely, abort at once.
	close()
	abort()
}

type dialSession func(ctx context.Context) (session, error)

// resumer is a session that goes on where its client's last one ended.
type resumer interface {
	next() (seq uint64, resumed bool)
}

// Backoff's numbers: those of gRPC's connection backoff, quicker at the start.
const (
	backoffFirst = 100 * time.Millisecond
	backoffMost  = 5 * time.Second
)

// openEvery is the least time between two sessions' beginnings: 2000 a second leave a core for the requests beside them.
const openEvery = 500 * time.Microsecond

// keepSessions holds Spec.Sessions of them open. They begin spread over an interval, a second at most, or over as long as they
// need at openEvery, so that neither their handshakes nor their messages come as one crowd.
func keepSessions(ctx context.Context, l *Ledger, how Reconnect, client func() dialSession) {
	var wg sync.WaitGroup
	o := &overseer{all: map[*overseen]struct{}{}, limit: l.Spec.Timeout}
	live, enough := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { o.run(live) })
	defer watch.Wait()
	defer enough()
	spread := max(min(time.Second, l.Spec.Interval), time.Duration(l.Spec.Sessions)*openEvery)
	for i := range l.Spec.Sessions {
		wg.Go(func() {
			if !sleep(ctx, spread*time.Duration(i)/time.Duration(l.Spec.Sessions)) {
				return
			}
			keepOne(ctx, l, how, o, client())
		})
	}
	wg.Wait()
}

// over says whether ctx has come to its end, also when its timer has only not fired yet.
func over(ctx context.Context) bool {
	at, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(at)
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func keepOne(ctx context.Context, l *Ledger, how Reconnect, o *overseer, dial dialSession) {
	var left time.Time // when the last session ended
	tries, connected := 0, 0
	for !over(ctx) {
		began := time.Now()
		one, cancel := context.WithTimeout(ctx, l.Spec.Timeout)
		s, err := dial(one)
		cancel()
		if err != nil {
			if over(ctx) {
				break
			}
			var known *outcomeError
			o, wire := causeOf(err, false)
			local := localOf(err)
			if errors.As(err, &known) {
				o, wire, local = known.outcome, known.wire, known.local
			}
			l.failed(began, o, wire, local)
		} else {
			e, spoke := talk(ctx, l, s, o, func() {
				away := time.Duration(0)
				if connected > 0 {
					away = time.Since(left)
				}
				l.opened(away)
			})
			e.Began, e.Attempt = began, connected
			switch {
			case spoke:
				l.closed(e)
				left, tries = e.At, 0
				connected++
				if over(ctx) {
					return
				}
			case e.Outcome == Told: // a goodbye before any welcome is a refusal
				l.failed(began, Closed, e.Wire+" before the first message", e.Local)
			case e.Outcome != OK: // a way there, and no answer: no session yet
				l.failed(began, e.Outcome, e.Wire, e.Local)
			}
		}
		var pause time.Duration
		switch how {
		case Never:
			return
		case Naive:
			if tries > 0 {
				pause = backoffFirst
			}
		case Backoff:
			pause = time.Duration(rand.Int64N(int64(min(backoffFirst<<min(tries, 10), backoffMost))))
		}
		tries++
		if !sleep(ctx, pause) {
			break
		}
	}
	if connected > 0 {
		l.away(left)
	}
}

// outcomeError is an error of a dial whose outcome is known already.
type outcomeError struct {
	outcome Outcome
	wire    string
	local   string
}

func (e *outcomeError) Error() string { return e.wire }

// talk runs a session to its end: its own when ctx is over, or the server's. With its first answer it is one: opened is
// called, and spoke is true. Sending and receiving have a goroutine each, and o looks after both: a server that doesn't read
// holds the sender, one that doesn't answer the receiver, and neither holds us.
func talk(ctx context.Context, l *Ledger, s session, o *overseer, opened func()) (e Entry, spoke bool) {
	n := &numbers{collects: s.collects(), listens: s.listens(), foreign: l.Spec.Data != nil, gaps: l.missing, missing: map[uint64]time.Time{}, sent: map[uint64]time.Time{}}
	if r, ok := s.(resumer); ok {
		if seq, resumed := r.next(); resumed {
			n.next, n.last = seq, time.Now()
		}
	}
	done := make(chan struct{})      // the receiver has come to an end
	finishing := make(chan struct{}) // ours: nothing more is sent
	sender := make(chan struct{})    // the sender has come to its end
	x := &overseen{session: s, numbers: n}
	o.add(x)
	defer o.remove(x)
	finished := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(finished)
		close(finishing)
		x.finish(l.Spec.Timeout, done, sender)
	})
	var wg sync.WaitGroup
	if s.listens() {
		close(sender)
	} else {
		wg.Go(func() { defer close(sender); keepSending(l.Spec.Interval, s, n, done, finishing) })
	}
	var spoken atomic.Bool
	speaks := sync.OnceFunc(func() { spoken.Store(true); opened() })
	var quietly *time.Timer
	switch w, ok := s.(interface{ welcomed() bool }); {
	case s.collects(): // it has no answer before its end
		speaks()
	case ok && w.welcomed(): // a quiet channel may say nothing for hours: that it stays is an answer
		quietly = time.AfterFunc(l.Spec.Interval, speaks)
	}
	for {
		seq, err := s.recv()
		if err != nil {
			e = Entry{At: time.Now(), Local: s.local()}
			ours := isClosed(finishing)
			close(done)
			owed := n.owed() > 0
			switch {
			case l.broken(): // we have ended it, without waiting
				e.Outcome = OK
			case x.hung.Load():
				e.Outcome, e.Wire = Timeout, "no answer, and no end"
			case ours && !owed:
				e.Outcome = OK
			default:
				e.Outcome, e.Wire = s.ending(err, owed)
			}
			s.abort()
			wg.Wait()
			if !stop() {
				<-finished
			}
			if quietly != nil && !quietly.Stop() {
				speaks() // it has begun to, or has done
			}
			n.settle(l, &e, l.broken() && e.Outcome == OK)
			return e, spoken.Load()
		}
		speaks()
		got := n.got
		switch {
		case s.listens():
			got = n.heard
		case s.collects():
			got = n.collected
		}
		if o := got(seq); o != OK {
			l.side(time.Now(), o, "", s.local())
		}
	}
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func keepSending(every time.Duration, s session, n *numbers, done, finishing <-chan struct{}) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for seq := uint64(0); ; seq++ {
		n.sending(seq)
		if s.send(seq) != nil {
			return // the receiver tells why, or the watch over it
		}
		select {
		case <-tick.C:
		case <-done:
			return
		case <-finishing:
			return
		}
		if isClosed(finishing) {
			return
		}
	}
}
