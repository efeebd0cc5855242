package app

import "sync"

// Count is what an app has seen of one kind.
type Count struct {
	Begun    uint64 `json:"begun"`
	Whole    uint64 `json:"whole"`  // ended as they should
	Broken   uint64 `json:"broken"` // ended otherwise
	Received uint64 `json:"messages_received"`
	Sent     uint64 `json:"messages_sent"`
	Bytes    uint64 `json:"bytes_received"`
}

// Counts are an app's, by kind.
type Counts map[string]Count

// Ledger counts.
type Ledger struct {
	mu sync.Mutex
	m  Counts
}

func newLedger() *Ledger { return &Ledger{m: Counts{}} }

func (l *Ledger) change(kind string, f func(*Count)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.m[kind]
	f(&c)
	l.m[kind] = c
}

func (l *Ledger) begin(kind string) { l.change(kind, func(c *Count) { c.Begun++ }) }

func (l *Ledger) end(kind string, whole bool) {
	l.change(kind, func(c *Count) {
		if whole {
			c.Whole++
		} else {
			c.Broken++
		}
	})
}

func (l *Ledger) message(kind string, received bool) {
	l.change(kind, func(c *Count) {
		if received {
			c.Received++
		} else {
			c.Sent++
		}
	})
}

func (l *Ledger) bytes(kind string, n int) {
	l.change(kind, func(c *Count) { c.Bytes += uint64(n) })
}

func (l *Ledger) counts() Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make(Counts, len(l.m))
	for k, c := range l.m {
		out[k] = c
	}
	return out
}

func (l *Ledger) open() (n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.m {
		n += c.Begun - c.Whole - c.Broken
	}
	return n
}
