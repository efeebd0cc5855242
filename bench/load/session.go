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
	// ending turns recv's error into an outcome. owed says that an answer was due.
	ending(err error, owed bool) (Outcome, string)
	local() string
	// close ends the session politely, abort at once.
	close()
	abort()
}

type dialSession func(ctx context.Context) (session, error)

// Backoff's numbers: those of gRPC's connection backoff, quicker at the start.
const (
	backoffFirst = 100 * time.Millisecond
	backoffMost  = 5 * time.Second
)

// keepSessions holds Spec.Sessions of them open. They begin spread over an interval, a second at most, so that neither their
// handshakes nor their messages come as one crowd.
func keepSessions(ctx context.Context, l *Ledger, how Reconnect, dial dialSession) {
	var wg sync.WaitGroup
	for i := range l.Spec.Sessions {
		wg.Go(func() {
			if !sleep(ctx, min(time.Second, l.Spec.Interval)*time.Duration(i)/time.Duration(l.Spec.Sessions)) {
				return
			}
			keepOne(ctx, l, how, dial)
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

func keepOne(ctx context.Context, l *Ledger, how Reconnect, dial dialSession) {
	var left time.Time // when the last session ended
	tries, connected := 0, 0
	for ctx.Err() == nil {
		began := time.Now()
		one, cancel := context.WithTimeout(ctx, l.Spec.Timeout)
		s, err := dial(one)
		cancel()
		if err != nil {
			if over(ctx) {
				return
			}
			var known *outcomeError
			o, wire := causeOf(err, false)
			local := ""
			if errors.As(err, &known) {
				o, wire, local = known.outcome, known.wire, known.local
			}
			l.failed(began, o, wire, local)
		} else {
			e, spoke := talk(ctx, l, s, func() {
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
			case e.Outcome != OK: // a way there, and no answer: no session yet
				l.failed(began, e.Outcome, e.Wire, e.Local)
			}
			if ctx.Err() != nil {
				return
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
			return
		}
	}
}

// outcomeError is an error of a dial whose outcome is known already.
type outcomeError struct {
	outcome Outcome
	wire    string
	local   string
}

func (e *outcomeError) Error() string { return e.wire }

// numbers follows the numbers of a session's messages.
type numbers struct {
	mu      sync.Mutex
	m       Messages
	next    uint64 // the lowest that did not come yet, but for missing
	missing map[uint64]struct{}
	sent    map[uint64]time.Time
	last    time.Time     // of a session that only listens: when it heard something
	gap     time.Duration // and for how long it heard nothing at most
}

// maxMissing bounds the gaps that are remembered.
const maxMissing = 10_000

func (n *numbers) sending(seq uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.m.Sent++
	if len(n.sent) < maxMissing {
		n.sent[seq] = time.Now()
	}
}

// got takes a message's number and says what is wrong with it, if anything is.
func (n *numbers) got(seq uint64) Outcome {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.m.Received++
	delete(n.sent, seq)
	switch {
	case seq == n.next:
		n.next++
	case seq > n.next:
		for i := n.next; i < seq && len(n.missing) < maxMissing; i++ {
			n.missing[i] = struct{}{}
		}
		n.next = seq + 1
	default:
		if _, was := n.missing[seq]; was {
			delete(n.missing, seq)
			n.m.Reordered++
			return MessageLate
		}
		n.m.Duplicated++
		return MessageTwice
	}
	return OK
}

// owed says for how long the oldest message has had no answer although nothing behind it was answered.
func (n *numbers) owed() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	var longest time.Duration
	for seq, at := range n.sent {
		if seq >= n.next {
			longest = max(longest, time.Since(at))
		}
	}
	return longest
}

// heard takes a message of a session that only listens: its numbers begin where the server is.
func (n *numbers) heard(seq uint64) Outcome {
	n.mu.Lock()
	now := time.Now()
	if n.last.IsZero() {
		n.next = seq
	} else {
		n.gap = max(n.gap, now.Sub(n.last))
	}
	n.last = now
	n.m.Sent = max(n.m.Sent, n.m.Received+1)
	n.mu.Unlock()
	return n.got(seq)
}

// silent says whether a session that only listens has heard nothing for much longer than ever before, and longer than limit.
func (n *numbers) silent(limit time.Duration) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.gap > 0 && time.Since(n.last) > max(limit, 4*n.gap)
}

// talk runs a session to its end: its own when ctx is over, or the server's. With its first answer it is one: opened is
// called, and spoke is true. Sending, receiving and watching over both have a goroutine each: a server that doesn't read
// holds the sender, one that doesn't answer the receiver, and neither holds us.
func talk(ctx context.Context, l *Ledger, s session, opened func()) (e Entry, spoke bool) {
	n := &numbers{missing: map[uint64]struct{}{}, sent: map[uint64]time.Time{}}
	done := make(chan struct{})      // the receiver has come to an end
	finishing := make(chan struct{}) // ours: nothing more is sent
	var hung atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() { watchOver(ctx, l.Spec, s, n, done, finishing, &hung) })
	if !s.listens() {
		wg.Go(func() { keepSending(l.Spec.Interval, s, n, done, finishing) })
	}
	for {
		seq, err := s.recv()
		if err != nil {
			e = Entry{At: time.Now(), Local: s.local()}
			ours := isClosed(finishing)
			close(done)
			owed := n.owed() > 0
			switch {
			case hung.Load():
				e.Outcome, e.Wire = Timeout, "no answer, and no end"
			case ours && !owed:
				e.Outcome = OK
			default:
				e.Outcome, e.Wire = s.ending(err, owed)
			}
			s.abort()
			wg.Wait()
			n.settle(l, &e)
			return e, spoke
		}
		if !spoke {
			spoke = true
			opened()
		}
		got := n.got
		if s.listens() {
			got = n.heard
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

// watchOver ends the session when ctx is over, politely if the server lets it, and when the server has fallen silent.
func watchOver(ctx context.Context, spec Spec, s session, n *numbers, done <-chan struct{}, finishing chan<- struct{}, hung *atomic.Bool) {
	look := time.NewTicker(min(spec.Timeout/4, 100*time.Millisecond))
	defer look.Stop()
	for ctx.Err() == nil {
		if n.owed() > spec.Timeout || s.listens() && n.silent(spec.Timeout) {
			hung.Store(true)
			s.abort()
			return
		}
		select {
		case <-look.C:
		case <-done:
			return
		case <-ctx.Done():
		}
	}
	close(finishing)
	for n.owed() > 0 && n.owed() < spec.Timeout {
		select {
		case <-done:
			return
		case <-time.After(time.Millisecond):
		}
	}
	if n.owed() > 0 {
		hung.Store(true)
		s.abort()
		return
	}
	go s.close() // a close may wait for the server, too
	select {
	case <-done:
	case <-time.After(min(spec.Timeout, goodbyeTime)):
		s.abort()
	}
}

// goodbyeTime is how long a server gets to answer our own goodbye.
const goodbyeTime = 2 * time.Second

// settle closes the numbers: what is missing behind an answered message was lost, and is named; what was under way when the
// session broke is part of that.
func (n *numbers) settle(l *Ledger, e *Entry) {
	n.mu.Lock()
	defer n.mu.Unlock()
	under := uint64(0)
	for seq := range n.sent {
		if seq >= n.next {
			under++
		}
	}
	n.m.Lost = uint64(len(n.missing))
	if e.Outcome == Told { // they crossed the goodbye: their client knows that they have no answer, and may send them again
		n.m.Unanswered = under
	} else {
		n.m.Lost += under
	}
	e.Messages = n.m
	for range n.missing {
		l.side(e.At, MessageLost, "", e.Local)
	}
}
