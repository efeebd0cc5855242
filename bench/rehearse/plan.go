// Package rehearse takes a share of a running sidecar's streams away from their clients and watches who comes back, when,
// and how bunched. It talks to the sidecar as anyone may, over its admin API.
package rehearse

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Plan is one rehearsal.
type Plan struct {
	Sidecar   string   // admin address
	Landing   []string // admin addresses of other sidecars at which clients may come back
	TokenFile string   // of all of them
	Mode      string
	Kinds     []string      // of the streams to take
	Share     float64       // of them, 0 to 1
	Over      time.Duration // taken one by one over this time; 0: at once
	Hold      time.Duration // of half-open and refuse-new
	Watch     time.Duration // after the last one
	Identity  string        // what tells clients apart
	Yes       bool          // more than a tenth, or everyone
	DryRun    bool
	Limits    Limits
}

// Limits are what is judged; negative: not judged.
type Limits struct {
	Never        int
	ReconnectP99 time.Duration
	Bunching     float64
}

// Defaults is a plan with nothing to do it to.
func Defaults() Plan {
	return Plan{Mode: "polite", Kinds: []string{"websocket", "grpc", "sse", "tunnel", "tcp", "tls"}, Share: 0.1, Watch: 30 * time.Second, Identity: "auto", Limits: Limits{Never: -1, ReconnectP99: -1, Bunching: -1}}
}

// asksFrom is the share above which a person has to say yes.
const asksFrom = 0.1

// modes say what each may be done to; nil: everything.
func modes() map[string][]string {
	return map[string][]string{"polite": nil, "goaway": {"http1", "http2", "grpc"}, "reset": nil, "half-open": nil, "refuse-new": nil}
}

func kinds() []string {
	return []string{"http1", "http2", "grpc", "websocket", "sse", "tunnel", "tcp", "tls"}
}

// Validate says what is wrong with it, by flag.
func (p *Plan) Validate() error {
	only, known := modes()[p.Mode]
	holds := p.Mode == "half-open" || p.Mode == "refuse-new"
	switch {
	case p.Sidecar == "":
		return errors.New("--sidecar: the admin address of a running sidecar is needed")
	case !known:
		return fmt.Errorf("--mode %q: want polite, goaway, reset, half-open or refuse-new", p.Mode)
	case !(p.Share > 0 && p.Share <= 1):
		return errors.New("--share: want more than 0 % and at most 100 %")
	case p.Over < 0 || p.Over > time.Hour:
		return fmt.Errorf("--over %v: want 0 to 1h", p.Over)
	case holds && (p.Hold <= 0 || p.Hold > 10*time.Minute):
		return fmt.Errorf("--hold %v: %s wants a time, 10m at most", p.Hold, p.Mode)
	case !holds && p.Hold != 0:
		return fmt.Errorf("--hold: %s takes none", p.Mode)
	case p.Watch <= 0:
		return fmt.Errorf("--watch %v: must be more than nothing", p.Watch)
	case !slices.Contains([]string{"auto", "identity", "ip-path", "ip"}, p.Identity):
		return fmt.Errorf("--identity %q: want auto, identity, ip-path or ip", p.Identity)
	case p.Limits.Never < -1:
		return errors.New("--max-never: want 0 or more, or -1 for no limit")
	case len(p.Kinds) == 0:
		return errors.New("--kind: none given")
	case p.Mode == "refuse-new" && !p.Yes && !p.DryRun:
		return errors.New("--mode refuse-new: refuses every new connection of every client; --yes says that this is meant")
	}
	for _, k := range p.Kinds {
		if !slices.Contains(kinds(), k) {
			return fmt.Errorf("--kind %q: want some of %s", k, strings.Join(kinds(), ", "))
		}
	}
	if only != nil {
		p.Kinds = slices.DeleteFunc(slices.Clone(p.Kinds), func(k string) bool { return !slices.Contains(only, k) })
		if len(p.Kinds) == 0 {
			return fmt.Errorf("--kind: %s works on %s alone", p.Mode, strings.Join(only, ", "))
		}
	}
	if p.Share > asksFrom && !p.Yes && !p.DryRun {
		return fmt.Errorf("--share %s: more than %.0f %% wants --yes", percent(p.Share), asksFrom*100)
	}
	return nil
}

// ParseShare reads "20%" or "0.2".
func ParseShare(s string) (float64, error) {
	text, percent := strings.CutSuffix(strings.TrimSpace(s), "%")
	v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil {
		return 0, fmt.Errorf("--share %q: want 20%% or 0.2", s)
	}
	if percent {
		v /= 100
	}
	if !(v > 0 && v <= 1) {
		return 0, fmt.Errorf("--share %q: want more than 0 %% and at most 100 %%", s)
	}
	return v, nil
}

func percent(v float64) string { return strconv.FormatFloat(v*100, 'f', -1, 64) + " %" }
