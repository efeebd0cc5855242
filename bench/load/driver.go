package load

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Driver runs one load until its context is over.
type Driver struct {
	Ledger *Ledger
	to     endpoint
	run    func(ctx context.Context)
	hard   context.Context //nolint:containedctx // of everything that is under way: it ends with Abort
	cut    context.CancelFunc
}

// Account is the ledger's, with the connections.
func (d *Driver) Account() Account {
	a := d.Ledger.Account()
	a.Connections = d.to.connects.now()
	return a
}

// Run drives the load. It returns when ctx is over and what was under way has come to its end.
func (d *Driver) Run(ctx context.Context) {
	var wg sync.WaitGroup
	if s := d.Ledger.Spec; s.Ready != "" {
		wg.Go(func() { follow(ctx, &s, d.to) })
	}
	d.run(ctx)
	wg.Wait()
}

// Abort breaks off what is under way when Run's context is over: no connection of the load's is left, and what they carried
// counts as never begun.
func (d *Driver) Abort() {
	d.Ledger.abort()
	d.cut()
	d.to.closeAll()
}

// New makes a load's driver. s must be valid.
func New(s Spec, reconnect Reconnect, start time.Time) (*Driver, error) {
	to, err := s.address()
	if err != nil {
		return nil, err
	}
	l := newLedger(s, start, &to.books)
	d := &Driver{Ledger: l, to: to}
	d.hard, d.cut = context.WithCancel(context.Background())
	requests := func(one func() requester) func(context.Context) {
		return func(ctx context.Context) { openLoop(ctx, d.hard, l, one) }
	}
	sessions := func(client func() dialSession) func(context.Context) {
		return func(ctx context.Context) { keepSessions(ctx, l, reconnect, client) }
	}
	each := func(dial func(context.Context, Spec, endpoint) (session, error)) func(context.Context) {
		return sessions(func() dialSession {
			return func(ctx context.Context) (session, error) { return dial(ctx, s, to) }
		})
	}
	switch s.Kind {
	case HTTP1, HTTP1New:
		if s.Retry != "" {
			d.run = requests(func() requester { return newLibraryHTTP(s, to, l) })
			break
		}
		d.run = requests(func() requester { return &http1Client{spec: s, to: to, kept: s.Kind == HTTP1, ledger: l} })
	case HTTP2:
		if s.Retry != "" {
			d.run = requests(func() requester { return newLibraryHTTP(s, to, l) })
			break
		}
		d.run = requests(func() requester { return &http2Client{spec: s, to: to} })
	case GRPCUnary:
		d.run = requests(func() requester { return &unaryClient{spec: s, to: to, ledger: l} })
	case GRPCStream:
		d.run = each(dialGRPCStream)
	case WebSocket:
		d.run = each(dialWebSocket)
	case SSE:
		d.run = sessions(func() dialSession { return newListener(s, to).dial })
	case TCP:
		d.run = each(dialTCP)
	default:
		return nil, fmt.Errorf("kind %q", s.Kind)
	}
	return d, nil
}

// requester asks one question at a time. do returns how it ended and the local address that it was asked from.
type requester interface {
	do(ctx context.Context) (o Outcome, wire, local string)
	close()
}

// maxWaiting bounds the requests that are due and wait for a free connection.
const maxWaiting = 200_000

// openLoop sends rate requests a second at even distances, each over the connection that is free first, until ctx is over.
// What is under way then has until its own time limit, or until hard is over.
func openLoop(ctx, hard context.Context, l *Ledger, one func() requester) {
	s := l.Spec
	due := make(chan time.Time, maxWaiting)
	var wg sync.WaitGroup
	for range s.Conns {
		wg.Go(func() {
			r := one()
			defer r.close()
			for at := range due {
				// A client's patience begins when the request is due: what has waited for longer is not sent any more, and a
				// server that has stopped answering holds nobody for longer than that.
				one, cancel := context.WithDeadline(hard, at.Add(s.Timeout))
				o, wire, local := Timeout, "no connection was free", ""
				if one.Err() == nil {
					o, wire, local = r.do(one)
				}
				cancel()
				l.end(at, o, wire, local)
			}
		})
	}
	every := time.Duration(float64(time.Second) / s.Rate)
	t := time.NewTimer(0)
	defer t.Stop()
	next := time.Now()
	for ctx.Err() == nil {
		now := time.Now()
		for ; !next.After(now); next = next.Add(every) {
			l.begin()
			select {
			case due <- next:
			default:
				l.end(next, Overflow, "", "")
			}
		}
		t.Reset(time.Until(next))
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
	close(due)
	wg.Wait()
}
