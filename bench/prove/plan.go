// Package prove terminates something under load and says whether anybody noticed: it drives loads, waits for a steady
// baseline, triggers, watches the target and its sidecars, and joins the clients' ledgers with the sidecars' fates.
package prove

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lastcall-proxy/lastcall/bench/load"
)

// Plan is what to do.
type Plan struct {
	Loads       []load.Spec
	Target      Target
	Warmup      time.Duration
	Baseline    time.Duration
	For         time.Duration // after the trigger
	Settle      time.Duration // after the loads have stopped: for the last fates
	Repeat      int
	Sidecars    []string
	TokenFile   string
	ReportFiles []string
	Reconnect   load.Reconnect
	Limits      Limits
}

// Limits are the thresholds; negative ones are not judged.
type Limits struct {
	FailedRequests int
	Unexplained    int
	CutStreams     int
	LostMessages   int
	ReconnectP99   time.Duration
}

// Defaults are a plan's before anything is set.
func Defaults() Plan {
	return Plan{
		Warmup: 3 * time.Second, Baseline: 5 * time.Second, For: 30 * time.Second, Settle: 5 * time.Second, Repeat: 1, Reconnect: load.Backoff,
		Limits: Limits{CutStreams: -1, LostMessages: -1, ReconnectP99: -1},
	}
}

// Validate finds what can't be, by the flag's name.
func (p *Plan) Validate() error {
	switch {
	case len(p.Loads) == 0:
		return errors.New("--load: at least one is needed")
	case p.Target == nil:
		return errors.New("one of --signal-pid, --exec and --none is needed")
	case p.Warmup < 0:
		return errors.New("--warmup: must not be negative")
	case p.Baseline <= 0:
		return errors.New("--baseline: must be more than nothing: without one there is nothing to compare with")
	case p.For <= 0:
		return errors.New("--for: must be more than nothing")
	case p.Settle < 0:
		return errors.New("--settle: must not be negative")
	case p.Repeat < 1 || p.Repeat > 100:
		return errors.New("--repeat: want 1 to 100")
	case p.Repeat > 1 && !p.Target.Repeats():
		return errors.New("--repeat: a process that was signalled is gone; give --exec a command that restarts it")
	case p.Reconnect != load.Backoff && p.Reconnect != load.Naive && p.Reconnect != load.Never:
		return fmt.Errorf("--reconnect %q: want backoff, naive or never", p.Reconnect)
	case p.Limits.FailedRequests < 0:
		return errors.New("--max-failed-requests: must not be negative")
	case p.Limits.CutStreams < -1:
		return errors.New("--max-cut-streams: want 0 or more, or -1 for no limit of its own")
	case p.Limits.LostMessages < -1:
		return errors.New("--max-lost-messages: want 0 or more, or -1 for no limit of its own")
	case p.Limits.Unexplained < 0:
		return errors.New("--max-unexplained: must not be negative")
	}
	long := false
	for i := range p.Loads {
		long = long || p.Loads[i].Kind.Long()
	}
	if !long && (p.Limits.CutStreams >= 0 || p.Limits.ReconnectP99 >= 0 || p.Limits.LostMessages >= 0) {
		return errors.New("--max-cut-streams, --max-reconnect-p99, --max-lost-messages: no load has sessions")
	}
	if p.Limits.ReconnectP99 >= 0 && p.Reconnect == load.Never {
		return errors.New("--max-reconnect-p99: nobody comes back with --reconnect never")
	}
	return nil
}

// signalOf takes TERM, SIGTERM or a number.
func signalOf(name string) (syscall.Signal, error) {
	if name == "" {
		return syscall.SIGTERM, nil
	}
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	if s := unix.SignalNum(strings.ToUpper(name)); s != 0 {
		return s, nil
	}
	return 0, fmt.Errorf("--signal %q: no such signal", name)
}
