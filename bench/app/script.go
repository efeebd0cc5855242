package app

import (
	"net/http"
	"strconv"
)

// script is what a session is to do wrong: ?lose=5 doesn't answer the fifth message, once in the app's life; likewise
// duplicate, silent (from then on) and reset.
type script struct {
	app  *App
	at   map[string]uint64
	mute bool
}

func (a *App) script(r *http.Request) *script {
	s := &script{app: a, at: map[string]uint64{}}
	for _, what := range []string{"lose", "duplicate", "silent", "reset"} {
		if n, err := strconv.ParseUint(r.URL.Query().Get(what), 10, 64); err == nil {
			s.at[what] = n
		}
	}
	return s
}

// answers is how often the n-th message is answered; reset ends the session.
func (s *script) answers(n uint64) (times int, reset bool) {
	hit := func(what string) bool { at, ok := s.at[what]; return ok && at == n && s.app.plant("session "+what) }
	switch {
	case s.mute:
		return 0, false
	case hit("lose"):
		return 0, false
	case hit("duplicate"):
		return 2, false
	case hit("silent"):
		s.mute = true
		return 0, false
	case hit("reset"):
		return 0, true
	}
	return 1, false
}
