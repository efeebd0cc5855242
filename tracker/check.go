package tracker

import (
	"errors"
	"fmt"
)

// Check proves the books: the balance of every direction and kind, the gauges against the lists they summarise, what holds
// a drain, the rings' bounds and bytes, and that nobody misused a handle. It holds each shard's lock while it walks the
// shard: it is for tests and for a person who asks, not for every scrape.
func (r *Registry) Check() error {
	var errs []error
	for i, s := range r.shards {
		if err := s.check(); err != nil {
			errs = append(errs, fmt.Errorf("tracker: shard %d: %w", i, err))
		}
	}
	c := r.Counts()
	if err := c.Balanced(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (s *Shard) check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	errs := []error{s.bug, s.books.Balanced()}
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	same := func(what string, got, want any) {
		if got != want {
			wrong("%s: %v booked, %v found", what, got, want)
		}
	}

	var open [numWhats][numDirections][numKinds]int64
	holdConns, streams := 0, 0
	var holdStreams, survivors [numKinds]int
	s.conns.each(func(c *Conn) {
		open[WhatConnection][c.dir][c.kind]++
		if c.class == ClassNormal {
			holdConns++
		}
		if c.fate != FateOpen {
			wrong("c%d is %s and among the open", c.id, c.fate)
		}
		streams += c.streams.n
		c.streams.each(func(st *Stream) {
			if st.conn != c || st.connID != c.id {
				wrong("c%d has the stream c%d.%d", c.id, st.connID, st.n)
			}
		})
	})
	s.streams.each(func(st *Stream) {
		open[WhatStream][st.dir][st.kind]++
		if st.class == ClassNormal {
			holdStreams[st.kind]++
			if s.survivor(st.epoch) {
				survivors[st.kind]++
			}
		}
		if st.fate != FateOpen {
			wrong("c%d.%d is %s and among the open", st.connID, st.n, st.fate)
		}
	})
	same("open", s.books.Open, open)
	same("connections that hold a drain", s.holdConns, holdConns)
	same("streams that hold a drain", s.holdStreams, holdStreams)
	same("survivors", s.survivorsOpen, survivors)
	same("open streams of open connections", streams, s.streams.n)
	if s.conns.n == 0 { // bytes are counted without the lock: they can be compared only while nothing moves
		for d := range numDirections {
			for i := range s.bytes[d] {
				same(fmt.Sprintf("%s bytes", d), s.bytes[d][i].Load(), s.endedBytes[d][i])
			}
		}
	}
	errs = append(errs, checkRing("connection ring", &s.connRing, func(c *Conn) (int, Fate) { return c.size(), c.fate }))
	errs = append(errs, checkRing("stream ring", &s.streamRing, func(st *Stream) (int, Fate) { return st.size(), st.fate }))
	return errors.Join(errs...)
}

func checkRing[T any](name string, r *ring[T], of func(*T) (size int, fate Fate)) error {
	n, bytes, open := 0, 0, 0
	r.each(func(rec *T) {
		size, fate := of(rec)
		n++
		bytes += size
		if fate == FateOpen {
			open++
		}
	})
	if n != r.n || bytes != r.bytes || open > 0 || r.over() {
		return fmt.Errorf("%s: %d records of %d bytes booked, %d of %d found, %d of them open, bounds %d and %d",
			name, r.n, r.bytes, n, bytes, open, r.maxRecords, r.maxBytes)
	}
	return nil
}
