package tracker

import (
	"slices"
	"sync"
	"sync/atomic"
)

// EventType says what happened.
type EventType uint8

// Events.
const (
	EventOpened   EventType = iota // Record: as it began, a stream's without its head
	EventEnded                     // Record: with its fate
	EventFarewell                  // Record: a connection that was given our first farewell
	EventPhase                     // Phase
	numEventTypes
)

var eventNames = [numEventTypes]string{"opened", "ended", "farewell", "phase"}

func (t EventType) String() string { return nameOf(eventNames[:], int(t)) }

// MarshalText gives the name.
func (t EventType) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText takes a name.
func (t *EventType) UnmarshalText(b []byte) error { return unmarshal(t, "event", eventNames[:], b) }

// Event is what a subscriber gets.
type Event struct {
	Type EventType `json:"type"`
	At   Time      `json:"at"`
	What What      `json:"what"`
	// Phase is the one just entered for EventPhase, else the one that reigns.
	Phase Phase `json:"phase"`
	// Record is a copy shared by all subscribers: not to be changed. Nil for EventPhase.
	Record *Record `json:"record,omitempty"`
	// Dropped is how many events before this one the subscriber has missed since the last one it got: its buffer was full.
	Dropped uint64 `json:"dropped,omitempty"`
}

// Interest is what a subscriber wants to hear of; the zero value is everything. What nobody wants is not even copied, and
// what a subscriber does not want takes no room in its buffer.
type Interest struct {
	Types []EventType // none: all
	What  []What      // of records; none: both. Phases are told in any case
	Query *Query      // of records: those that it selects; nil: all. It is asked on the data path
}

func (i *Interest) mask() (m uint32) {
	for t := range numEventTypes {
		if len(i.Types) > 0 && !slices.Contains(i.Types, t) {
			continue
		}
		for w := range numWhats {
			if t == EventPhase || len(i.What) == 0 || slices.Contains(i.What, w) {
				m |= bitOf(t, w)
			}
		}
	}
	return m
}

func bitOf(t EventType, w What) uint32 { return 1 << (uint32(t)*uint32(numWhats) + uint32(w)) }

// hub hands events to subscribers. What nobody wants costs one atomic load.
type hub struct {
	wanted atomic.Uint32 // by anybody: bits of bitOf
	mu     sync.Mutex
	// Guarded by mu.
	subs map[*subscriber]struct{}
}

type subscriber struct {
	ch      chan Event
	mask    uint32
	query   *Query
	dropped uint64
}

func (h *hub) wants(t EventType, w What) bool { return h.wanted.Load()&bitOf(t, w) != 0 }

// sum is called with mu held.
func (h *hub) sum() {
	var m uint32
	for sub := range h.subs {
		m |= sub.mask
	}
	h.wanted.Store(m)
}

// Subscribe returns a channel of the events that are wanted with room for buf of them, and a function that ends the subscription and closes
// the channel; it may be called more than once. When the room is used up events are dropped, counted, and told by
// Event.Dropped: the data path waits for no reader.
func (r *Registry) Subscribe(buf int, want Interest) (<-chan Event, func()) {
	sub := &subscriber{ch: make(chan Event, max(buf, 1)), mask: want.mask(), query: want.Query}
	h := &r.events
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.subs == nil {
		h.subs = map[*subscriber]struct{}{}
	}
	h.subs[sub] = struct{}{}
	h.sum()
	return sub.ch, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if _, ok := h.subs[sub]; !ok {
			return
		}
		delete(h.subs, sub)
		h.sum()
		close(sub.ch)
	}
}

func (h *hub) send(ev Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for sub := range h.subs {
		if sub.mask&bitOf(ev.Type, ev.What) == 0 || ev.Record != nil && sub.query != nil && !sub.query.Matches(ev.Record) {
			continue
		}
		ev.Dropped = sub.dropped
		select {
		case sub.ch <- ev:
			sub.dropped = 0
		default:
			sub.dropped++
		}
	}
}

// publish sends what sn holds. Called without locks.
func (r *Registry) publish(t EventType, sn *snap, at int64) {
	rec := sn.record(at)
	r.events.send(Event{Type: t, At: Time(at), What: rec.What, Phase: r.Phase(), Record: &rec})
}

// tellEnded gives the record in scratch to subscribers and to OnEnd. Called by the owner without locks.
func (s *Shard) tellEnded(events, told bool) {
	rec := s.scratch.record(s.scratch.ended)
	if events {
		shared := rec
		s.reg.events.send(Event{
			Type: EventEnded, At: rec.EndedAt, What: rec.What, Phase: s.reg.Phase(), Record: &shared,
		})
	}
	if told && s.reg.cfg.OnEnd != nil {
		s.reg.cfg.OnEnd(rec.What, &rec)
	}
}
