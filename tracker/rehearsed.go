package tracker

import (
	"sync/atomic"
)

// Reconnect is what became of a client whose stream a rehearsal took.
type Reconnect uint8

// Outcomes of a rehearsal, one for each client. The names are label values.
const (
	Returned     Reconnect = iota // it came back
	Stayed                        // it never left: it sat the silence out, or had nothing new to ask for after a GOAWAY
	NeverBack                     // it did not, for as long as was watched
	NotWatched                    // the rehearsal was interrupted before it could be told
	numReconnect                  //
)

// AllReconnects are all of them.
func AllReconnects() []Reconnect { return []Reconnect{Returned, Stayed, NeverBack, NotWatched} }

// String is the label value.
func (r Reconnect) String() string {
	switch r {
	case Returned:
		return "returned"
	case Stayed:
		return "stayed"
	case NeverBack:
		return "never"
	case NotWatched:
		return "not_watched"
	case numReconnect:
	}
	return "unknown"
}

// rehearsed counts what rehearsals found.
type rehearsed struct {
	last     atomic.Int64 // ns; 0: never
	outcomes [numReconnect]atomic.Uint64
}

// Rehearsed adds what a rehearsal that ended at this moment found: how many clients, by outcome.
func (r *Registry) Rehearsed(n map[Reconnect]uint64) {
	for k, v := range n {
		if k < numReconnect {
			r.rehearsed.outcomes[k].Add(v)
		}
	}
	r.rehearsed.last.Store(r.Now())
}

// Rehearsals tells when the last rehearsal ended (0: there was none) and what all of them found.
func (r *Registry) Rehearsals() (last int64, n map[Reconnect]uint64) {
	n = make(map[Reconnect]uint64, numReconnect)
	for _, k := range AllReconnects() {
		n[k] = r.rehearsed.outcomes[k].Load()
	}
	return r.rehearsed.last.Load(), n
}
