package proxy

import "github.com/lastcall-proxy/lastcall/tracker"

// The methods below are what a drain asks for (drain.Actor): each hands its work to the loops and returns at once.

// Farewell says goodbye to every connection, and to those that come.
func (s *Server) Farewell() {
	s.each(func(w *worker) {
		w.telling = true
		for _, k := range w.sessions {
			k.farewell()
		}
	})
}

// Reject refuses late arrivals from now on; with refuse, the listeners close.
func (s *Server) Reject(refuse bool) {
	if refuse {
		s.CloseListeners()
	}
	s.each(func(w *worker) {
		w.rejecting = true
		for _, k := range w.sessions {
			k.reject()
		}
	})
}

// Serve takes Farewell and Reject back.
func (s *Server) Serve() {
	s.workers[0].loop.Do(s.reopen)
	s.each(func(w *worker) {
		w.telling, w.rejecting = false, false
		for _, k := range w.sessions {
			k.serve()
		}
	})
}

func (s *Server) forEach(ids []uint64, f func(*session)) {
	if len(ids) == 0 {
		return
	}
	s.each(func(w *worker) {
		for _, id := range ids {
			if k := w.sessions[id]; k != nil {
				f(k)
			}
		}
	})
}

// CloseIdle sends connections home that have nothing in flight; others are left alone.
func (s *Server) CloseIdle(ids []uint64) { s.forEach(ids, (*session).closeIdle) }

// End ends connections politely, as their protocol allows.
func (s *Server) End(ids []uint64) {
	s.forEach(ids, func(k *session) { k.endPolitely(tracker.Ended, tracker.ByLastcall, "closing window") })
}

// Cut closes everything that is still open.
func (s *Server) Cut() {
	s.each(func(w *worker) {
		for _, k := range w.sessions {
			k.kill(tracker.End{Fate: tracker.Cut, By: tracker.ByLastcall, How: tracker.HowExit, Reason: "drain deadline"})
		}
	})
}
