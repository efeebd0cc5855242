package tracker

import "fmt"

// durationBounds are the upper bounds of the stream duration histogram's buckets, in nanoseconds.
var durationBounds = [...]int64{
	5e6, 10e6, 25e6, 50e6, 100e6, 250e6, 500e6, 1e9, 2500e6, 5e9, 10e9, 30e9, 60e9, 300e9, 1800e9, 14400e9,
}

// DurationBounds are the upper bounds of Histogram's buckets in seconds, but for the last one, which is +Inf.
func DurationBounds() []float64 {
	out := make([]float64, len(durationBounds))
	for i, ns := range durationBounds {
		out[i] = float64(ns) / 1e9
	}
	return out
}

// Histogram counts durations in the buckets of DurationBounds. Buckets are not cumulative; the last one is +Inf.
type Histogram struct {
	Buckets [len(durationBounds) + 1]uint64
	Count   uint64
	SumNS   int64
}

func (h *Histogram) observe(ns int64) {
	i := 0
	for i < len(durationBounds) && ns > durationBounds[i] {
		i++
	}
	h.Buckets[i]++
	h.Count++
	h.SumNS += ns
}

// Books are the counters that a shard keeps and that sum up over shards. Indexes are the enums' values.
type Books struct {
	Opened [numWhats][numDirections][numKinds]uint64
	Open   [numWhats][numDirections][numKinds]int64
	// Inherited are those that an earlier process left: opened and lost, without a record.
	Inherited [numWhats][numDirections][numKinds]uint64
	// Fates by fate and by party, under the kind that the record had at its end.
	Fates [numWhats][numDirections][numKinds][numFates][numParties]uint64
	// KindChanges [from][to]: a record is opened under the kind it was first taken for.
	KindChanges [numWhats][numDirections][numKinds][numKinds]uint64
	// Durations are those of streams that ended.
	Durations [numDirections][numKinds]Histogram
	// Farewells of ours, counted at the connection's end; second index 1: obeyed.
	Farewells [numFarewells][2]uint64
	// OthersFarewells are those that the app or the client said by itself.
	OthersFarewells [numFarewells]uint64
	// Late arrivals by what they got; probes and scrapes are not counted.
	Late [numWhats][numAnswers]uint64
	// OrdinaryOmitted are the ends that OnEnd was not told of.
	OrdinaryOmitted uint64
}

// Counts is a snapshot of everything that is counted. Books are consistent: opened == open + Σ fates in it, whatever
// happens meanwhile.
type Counts struct {
	Books
	At    int64 // ns since the epoch
	Bytes [numDirections]Sides[uint64]

	LostTrack       []LostTrackCount
	DialErrors      []ReasonCount
	HandshakeErrors [numDirections][]ReasonCount

	Phase Phase
	// The drain's facts; all zero, absent or -1 while there is none.
	DrainStartedAt int64           // ns since the epoch
	DrainDeadline  int64           // ns since the epoch
	LastLate       [numWhats]int64 // ns after the drain's start; -1: none came
	SurvivorsOpen  [numKinds]int64 // streams, open now, probes and scrapes left out
}

// Sides is one value per flow, named by the flow's source.
type Sides[T any] struct {
	Client T `json:"client"`
	App    T `json:"app"`
}

// Counts takes each shard's lock once, for the time of copying its counters.
func (r *Registry) Counts() Counts {
	c := Counts{LastLate: [numWhats]int64{-1, -1}}
	r.mu.Lock()
	c.At = r.Now()
	c.Phase = r.Phase()
	if r.drain.active {
		c.DrainStartedAt, c.DrainDeadline = r.drain.startedAt, r.drain.deadline
	}
	r.mu.Unlock()

	var b Books
	for _, s := range r.shards {
		s.mu.Lock()
		b = s.books
		draining := s.draining()
		for k, n := range s.survivorsOpen {
			c.SurvivorsOpen[k] += int64(n)
		}
		lastLate := s.drain.lastLate
		s.mu.Unlock()
		c.add(&b)
		for w := range lastLate {
			if draining {
				c.LastLate[w] = max(c.LastLate[w], lastLate[w])
			}
		}
		for d := range s.bytes {
			c.Bytes[d].Client += uint64(s.bytes[d][0].Load())
			c.Bytes[d].App += uint64(s.bytes[d][1].Load())
		}
	}
	r.reasons.copyTo(&c)
	return c
}

// Sum adds up one of the tables over directions and kinds: opened, open and ended records.
func (b *Books) Sum(what What) (opened, open, ended uint64) {
	var gauge int64
	for d := range numDirections {
		for k := range numKinds {
			opened += b.Opened[what][d][k]
			gauge += b.Open[what][d][k]
			ended += b.ended(what, d, k)
		}
	}
	return opened, uint64(gauge), ended
}

// FateSum adds up a fate over directions, kinds and parties.
func (b *Books) FateSum(what What, f Fate) uint64 {
	var n uint64
	for d := range numDirections {
		for k := range numKinds {
			for _, v := range b.Fates[what][d][k][f] {
				n += v
			}
		}
	}
	return n
}

// Balanced proves the promise of this package for each direction and kind, and that no end is booked that cannot occur.
func (b *Books) Balanced() error {
	for w := range numWhats {
		for d := range numDirections {
			for k := range numKinds {
				var in, out uint64
				for o := range numKinds {
					in += b.KindChanges[w][d][o][k]
					out += b.KindChanges[w][d][k][o]
				}
				opened, open, ended := b.Opened[w][d][k], b.Open[w][d][k], b.ended(w, d, k)
				if open < 0 {
					return fmt.Errorf("tracker: %s %s %s: %d open", w, d, k, open)
				}
				if opened+in-out != uint64(open)+ended {
					return fmt.Errorf("tracker: %s %s %s: opened %d + changed to it %d - changed from it %d != open %d + ended %d",
						w, d, k, opened, in, out, open, ended)
				}
				if err := b.possible(w, d, k); err != nil {
					return err
				}
				// How long an earlier process's streams lived is unknown.
				ended -= b.Inherited[w][d][k]
				if w == WhatStream && b.Durations[d][k].Count != ended {
					return fmt.Errorf("tracker: stream %s %s: %d durations of %d ended", d, k, b.Durations[d][k].Count, ended)
				}
			}
		}
	}
	return nil
}

func (b *Books) possible(w What, d Direction, k Kind) error {
	for f := range numFates {
		for p := range numParties {
			if n := b.Fates[w][d][k][f][p]; n > 0 && !CanOccur(w, k, f, p) {
				return fmt.Errorf("tracker: %s %s %s: %d ended as %s by %s, which cannot occur", w, d, k, n, f, p)
			}
		}
	}
	return nil
}

func (b *Books) ended(w What, d Direction, k Kind) uint64 {
	var n uint64
	for f := range b.Fates[w][d][k] {
		for _, v := range b.Fates[w][d][k][f] {
			n += v
		}
	}
	return n
}

func (b *Books) add(o *Books) {
	for w := range numWhats {
		for d := range numDirections {
			for k := range numKinds {
				b.Opened[w][d][k] += o.Opened[w][d][k]
				b.Open[w][d][k] += o.Open[w][d][k]
				b.Inherited[w][d][k] += o.Inherited[w][d][k]
				for f := range numFates {
					for p := range numParties {
						b.Fates[w][d][k][f][p] += o.Fates[w][d][k][f][p]
					}
				}
				for to := range numKinds {
					b.KindChanges[w][d][k][to] += o.KindChanges[w][d][k][to]
				}
			}
		}
		for a := range numAnswers {
			b.Late[w][a] += o.Late[w][a]
		}
	}
	for d := range numDirections {
		for k := range numKinds {
			b.Durations[d][k].add(&o.Durations[d][k])
		}
	}
	for f := range numFarewells {
		b.Farewells[f][0] += o.Farewells[f][0]
		b.Farewells[f][1] += o.Farewells[f][1]
		b.OthersFarewells[f] += o.OthersFarewells[f]
	}
	b.OrdinaryOmitted += o.OrdinaryOmitted
}

func (h *Histogram) add(o *Histogram) {
	for i, n := range o.Buckets {
		h.Buckets[i] += n
	}
	h.Count += o.Count
	h.SumNS += o.SumNS
}
