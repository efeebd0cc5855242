package app

import (
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// events sends a numbered event ?every=100ms. A client that comes back with Last-Event-ID goes on behind it.
func (a *App) events(w http.ResponseWriter, r *http.Request) {
	every, err := time.ParseDuration(r.URL.Query().Get("every"))
	if err != nil || every <= 0 {
		every = 200 * time.Millisecond
	}
	plan := a.script(r)
	a.ledger.begin("sse")
	whole := false
	defer func() { a.ledger.end("sse", whole) }()
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	tick := time.NewTicker(every)
	defer tick.Stop()
	first := uint64(1)
	if last, err := strconv.ParseUint(r.Header.Get("Last-Event-ID"), 10, 64); err == nil {
		first = last + 1
	}
	for n := first; ; n++ {
		times, reset := plan.answers(n)
		if reset {
			panic(http.ErrAbortHandler)
		}
		for range times {
			if _, err := fmt.Fprintf(w, "id: %d\ndata: event\n\n", n); err != nil || out.Flush() != nil {
				return
			}
			a.ledger.message("sse", false)
		}
		select {
		case <-tick.C:
		case <-a.going:
			whole = true
			return
		case <-r.Context().Done():
			return
		}
	}
}
