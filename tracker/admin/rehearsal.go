package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/lastcall-proxy/lastcall/tracker"
)

// ErrBadPlan is wrapped by a Rehearser for a plan that can't be done; its message names the field.
var ErrBadPlan = errors.New("bad plan")

// Rehearser ends, silences or refuses connections so that their clients' coming back can be watched.
type Rehearser interface {
	StartRehearsal(p *RehearsalPlan) (Rehearsal, error)
	CancelRehearsal() (Rehearsal, error)
	Rehearsal() Rehearsal
}

// RehearsalPlan is the body of POST /v1/rehearsal.
type RehearsalPlan struct {
	// Mode is polite, goaway, reset, half-open or refuse-new.
	Mode string `json:"mode"`
	// Connections are such as "c42", in the order in which they are taken; at most 20 000.
	Connections []string `json:"connections"`
	// Over is the time over which they are taken, one by one; 0: at once.
	Over float64 `json:"over_s"`
	// Hold is how long half-open and refuse-new last; for them alone. They end by themselves even if the caller is gone.
	Hold float64 `json:"hold_s"`
}

// Rehearsal is one as it stands, or the last one.
type Rehearsal struct {
	ID     int    `json:"id"`     // counts from 1; 0: there was none
	Mode   string `json:"mode"`   // as in the plan
	Status string `json:"status"` // idle, running, over or cancelled
	Reason string `json:"reason"` // why it was cancelled
	// StartedAt and Until are absent before the first.
	StartedAt *tracker.Time `json:"started_at,omitempty"`
	Until     *tracker.Time `json:"until,omitempty"`
	Picked    int           `json:"picked"`   // connections of the plan
	Taken     int           `json:"taken"`    // those it was done to
	Missed    int           `json:"missed"`   // those that were gone, or whose protocol has no word for it
	Held      int           `json:"held"`     // silent now
	Refusing  bool          `json:"refusing"` // new connections are refused now
}

// maxOutcomes bounds what one rehearsal can have found.
const maxOutcomes = 1_000_000

// maxPlan bounds a plan's JSON.
const maxPlan = 1 << 20

func (cfg Config) rehearsals(mux *http.ServeMux) {
	if cfg.Rehearser == nil {
		return
	}
	mux.HandleFunc("GET /v1/rehearsal", func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, cfg.Rehearser.Rehearsal()) })
	mux.HandleFunc("POST /v1/rehearsal", func(w http.ResponseWriter, r *http.Request) {
		var p RehearsalPlan
		if !decode(w, r, &p) {
			return
		}
		s, err := cfg.Rehearser.StartRehearsal(&p)
		rehearsed(w, http.StatusAccepted, s, err)
	})
	// ?id=N cancels that one alone: who began an earlier one must not end it.
	mux.HandleFunc("DELETE /v1/rehearsal", func(w http.ResponseWriter, r *http.Request) {
		if v := r.URL.Query().Get("id"); v != "" && v != strconv.Itoa(cfg.Rehearser.Rehearsal().ID) {
			fail(w, http.StatusConflict, "conflict", "id: "+v+" is not the one that runs")
			return
		}
		s, err := cfg.Rehearser.CancelRehearsal()
		rehearsed(w, http.StatusOK, s, err)
	})
	mux.HandleFunc("POST /v1/rehearsal/outcomes", cfg.outcomes)
}

// outcomes takes what a rehearsal found, for lastcall_reconnects_total.
func (cfg Config) outcomes(w http.ResponseWriter, r *http.Request) {
	var in map[string]uint64
	if !decode(w, r, &in) {
		return
	}
	found := make(map[tracker.Reconnect]uint64, len(in))
	known := make(map[string]bool, len(in))
	for _, k := range tracker.AllReconnects() {
		if in[k.String()] > maxOutcomes {
			fail(w, http.StatusBadRequest, "bad_parameter", fmt.Sprintf("%s: want %d at most", k, maxOutcomes))
			return
		}
		if n := in[k.String()]; n > 0 {
			found[k] = n
		}
		known[k.String()] = true
	}
	for name := range in {
		if !known[name] {
			fail(w, http.StatusBadRequest, "bad_parameter", name+": no such outcome")
			return
		}
	}
	cfg.Registry.Rehearsed(found)
	w.WriteHeader(http.StatusNoContent)
}

// decode reads a strict, bounded JSON body, or answers what is wrong with it.
func decode(w http.ResponseWriter, r *http.Request, to any) bool {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxPlan))
	d.DisallowUnknownFields()
	err := d.Decode(to)
	if err == nil && d.More() {
		err = errors.New("more than one value")
	}
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("a JSON body is needed")
		}
		fail(w, http.StatusBadRequest, "bad_parameter", err.Error())
		return false
	}
	return true
}

func rehearsed(w http.ResponseWriter, status int, s Rehearsal, err error) {
	switch {
	case err == nil:
		reply(w, status, s)
	case errors.Is(err, ErrBadPlan):
		fail(w, http.StatusBadRequest, "bad_parameter", err.Error())
	case errors.Is(err, ErrConflict):
		fail(w, http.StatusConflict, "conflict", err.Error())
	default:
		fail(w, http.StatusInternalServerError, "internal", err.Error())
	}
}
