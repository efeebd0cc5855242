package proxy

import (
	"time"

	"github.com/lastcall-proxy/lastcall/proxy/observe"
	"github.com/lastcall-proxy/lastcall/tracker"
)

// The methods below are what a rehearsal asks for (rehearse.Actor). Each waits for the loops, and returns how many of the
// connections it found and could do it to.

// Reasons in the records of a rehearsal.
const (
	rehearsalReason = "rehearsal"
	leftHeldReason  = "left while held by a rehearsal"
	refusedReason   = "rehearsal: new connections are refused"
	partedReason    = "rehearsal: told to go elsewhere"
)

// Kick ends connections as an operator does: politely, or by reset.
func (s *Server) Kick(ids []uint64, polite bool) int {
	return s.take(ids, func(k *session) bool {
		if k.finishing {
			return false
		}
		if polite {
			k.endPolitely(tracker.Kicked, tracker.ByOperator, rehearsalReason)
		} else {
			k.kill(tracker.End{Fate: tracker.Kicked, By: tracker.ByOperator, How: tracker.HowRST, Reason: rehearsalReason})
		}
		return true
	})
}

// Part tells clients to take what is new elsewhere: GOAWAY (RFC 9113 section 6.8), Connection: close. What is in flight
// runs on. False for connections whose protocol has no such word.
func (s *Server) Part(ids []uint64) int { return s.take(ids, (*session).part) }

// Hold makes connections fall silent both ways until Release.
func (s *Server) Hold(ids []uint64) int { return s.take(ids, (*session).hold) }

// Release undoes Hold; it returns how many were still held.
func (s *Server) Release(ids []uint64) int { return s.take(ids, (*session).release) }

// Held is how many connections are silent now.
func (s *Server) Held() int { return int(s.held.Load()) }

// RefuseNew refuses connections that come from now on as late ones are during a drain (probes are still answered), or
// serves them again.
func (s *Server) RefuseNew(on bool) {
	s.each(func(w *worker) {
		w.refusing = on
		if on || w.rejecting {
			return
		}
		for _, k := range w.sessions { // those that have asked for nothing yet: a server that speaks first is waited for
			if k.unwelcome && k.rejecting && !k.finishing && !k.rejected {
				k.unwelcome = false
				k.serve()
			}
		}
	})
}

// takeTime is how long the loops get for one request of a rehearsal.
const takeTime = 5 * time.Second

func (s *Server) take(ids []uint64, f func(*session) bool) int {
	if len(ids) == 0 {
		return 0
	}
	done := make(chan int, len(s.workers))
	s.each(func(w *worker) {
		n := 0
		for _, id := range ids {
			if k := w.sessions[id]; k != nil && f(k) {
				n++
			}
		}
		done <- n
	})
	wait := time.NewTimer(takeTime)
	defer wait.Stop()
	n := 0
	for range s.workers {
		select {
		case m := <-done:
			n += m
		case <-wait.C:
			return n
		}
	}
	return n
}

// partAgain is when the last GOAWAY follows the first: after a round trip (RFC 9113 section 6.8).
const partAgain = time.Second

func (s *session) part() bool {
	switch {
	case s.finishing || s.lost || s.obs == nil || s.parted:
		return false
	case s.protocol == observe.HTTP2:
		s.parted = true
		s.farewell()
		s.w.loop.After(partAgain, func() {
			if s.w.sessions[s.conn.ID()] == s && !s.finishing {
				s.reject()
			}
		})
		return true
	case s.protocol != observe.HTTP1:
		return false
	case s.idle():
		s.closeIdle()
		return true
	}
	s.parted = true
	s.farewell()
	return true
}

func (s *session) hold() bool {
	if s.finishing || !s.link.Hold(func() { s.leftHeld = true; s.unhold() }) {
		return false
	}
	s.held = true
	s.w.srv.held.Add(1)
	return true
}

func (s *session) release() bool {
	if !s.held {
		return false
	}
	s.unhold()
	s.link.Release()
	return true
}

// unhold keeps the count of what is held.
func (s *session) unhold() {
	if s.held {
		s.held = false
		s.w.srv.held.Add(-1)
	}
}

// refusal is the reason in the record of what was refused.
func (s *session) refusal() string {
	switch {
	case s.unwelcome:
		return refusedReason
	case s.parted:
		return partedReason
	}
	return "late arrival"
}
