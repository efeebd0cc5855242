package tracker

import (
	"cmp"
	"slices"
	"sync"
)

// maxReasons bounds the distinct reasons of a counter; what comes after them is counted as otherReason.
const (
	maxReasons  = 64
	otherReason = "other"
)

// reasons count what goes wrong by reason. They are the registry's, not the shards': such things are rare enough for one
// lock, and which reasons came first must be one fact, or a counter could shrink when shards are added up.
type reasons struct {
	mu        sync.Mutex
	lost      map[lostKey]uint64
	dial      map[string]uint64
	handshake [numDirections]map[string]uint64
}

type lostKey struct {
	kind   Kind
	reason string
}

// ReasonCount is a counter per reason.
type ReasonCount struct {
	Reason string
	N      uint64
}

// LostTrackCount counts observers that stopped understanding.
type LostTrackCount struct {
	Kind   Kind
	Reason string
	N      uint64
}

// LostTrack counts an observer that stopped understanding a connection of kind k. Reasons come from a closed set.
func (s *Shard) LostTrack(k Kind, reason string) {
	rs := &s.reg.reasons
	rs.mu.Lock()
	defer rs.mu.Unlock()
	countReason(&rs.lost, lostKey{kind: k, reason: reason}, lostKey{kind: k, reason: otherReason})
}

// DialError counts a failed dial to the app. Reasons come from a closed set: no addresses.
func (s *Shard) DialError(reason string) {
	rs := &s.reg.reasons
	rs.mu.Lock()
	defer rs.mu.Unlock()
	countReason(&rs.dial, reason, otherReason)
}

// HandshakeError counts a failed TLS handshake. Reasons come from a closed set.
func (s *Shard) HandshakeError(d Direction, reason string) {
	rs := &s.reg.reasons
	rs.mu.Lock()
	defer rs.mu.Unlock()
	countReason(&rs.handshake[d], reason, otherReason)
}

// ExpectDialErrors makes the reasons exist at zero, so that a rate sees the first one.
func (r *Registry) ExpectDialErrors(list []string) {
	r.reasons.mu.Lock()
	defer r.reasons.mu.Unlock()
	expect(&r.reasons.dial, list)
}

// ExpectHandshakeErrors does the same for a direction in which TLS is terminated.
func (r *Registry) ExpectHandshakeErrors(d Direction, list []string) {
	r.reasons.mu.Lock()
	defer r.reasons.mu.Unlock()
	expect(&r.reasons.handshake[d], list)
}

func expect(m *map[string]uint64, list []string) {
	if *m == nil {
		*m = map[string]uint64{}
	}
	for _, reason := range list {
		if _, ok := (*m)[reason]; !ok {
			(*m)[reason] = 0
		}
	}
}

// countReason adds one under key, or under other once the map has maxReasons keys.
func countReason[K comparable](m *map[K]uint64, key, other K) {
	if *m == nil {
		*m = map[K]uint64{}
	}
	if _, ok := (*m)[key]; !ok && len(*m) >= maxReasons {
		key = other
	}
	(*m)[key]++
}

// copyTo fills in the counters by reason, each sorted.
func (rs *reasons) copyTo(c *Counts) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for k, n := range rs.lost {
		c.LostTrack = append(c.LostTrack, LostTrackCount{Kind: k.kind, Reason: k.reason, N: n})
	}
	slices.SortFunc(c.LostTrack, func(a, b LostTrackCount) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Reason, b.Reason))
	})
	c.DialErrors = reasonCounts(rs.dial)
	for d := range rs.handshake {
		c.HandshakeErrors[d] = reasonCounts(rs.handshake[d])
	}
}

func reasonCounts(m map[string]uint64) []ReasonCount {
	out := make([]ReasonCount, 0, len(m))
	for reason, n := range m {
		out = append(out, ReasonCount{Reason: reason, N: n})
	}
	slices.SortFunc(out, func(a, b ReasonCount) int { return cmp.Compare(a.Reason, b.Reason) })
	return out
}
