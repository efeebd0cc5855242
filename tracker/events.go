package tracker

import (
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

// hub hands events to subscribers. With none it costs one atomic load per event.
type hub struct {
	n  atomic.Int32 // subscribers
	mu sync.Mutex
	// Guarded by mu.
	subs map[*subscriber]struct{}
}

type subscriber struct {
	ch      chan Event
	dropped uint64
}

func (h *hub) any() bool { return h.n.Load() > 0 }

// Subscribe returns a channel of events with room for buf of them, and a function that ends the subscription and closes
// the channel; it may be called more than once. When the room is used up events are dropped, counted, and told by
// Event.Dropped: the data path waits for no reader.
func (r *Registry) Subscribe(buf int) (<-chan Event, func()) {
	sub := &subscriber{ch: make(chan Event, max(buf, 1))}
	h := &r.events
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.subs == nil {
		h.subs = map[*subscriber]struct{}{}
	}
	h.subs[sub] = struct{}{}
	h.n.Store(int32(len(h.subs)))
	return sub.ch, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if _, ok := h.subs[sub]; !ok {
			return
		}
		delete(h.subs, sub)
		h.n.Store(int32(len(h.subs)))
		close(sub.ch)
	}
}

func (h *hub) send(ev Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for sub := range h.subs {
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
