// Package prove terminates something under load and says whether anybody noticed: it drives loads, waits for a steady
// baseline, triggers, watches the target and its sidecars, and joins the clients' ledgers with the sidecars' fates.
package prove

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"

	"go.yaml.in/yaml/v3"
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

// file is the plan file's form: the flags' names in snake_case.
type file struct {
	Load              []string `yaml:"load"`
	SignalPID         int      `yaml:"signal_pid"`
	Signal            string   `yaml:"signal"`
	Exec              string   `yaml:"exec"`
	None              bool     `yaml:"none"`
	Warmup            *dur     `yaml:"warmup"`
	Baseline          *dur     `yaml:"baseline"`
	For               *dur     `yaml:"for"`
	Settle            *dur     `yaml:"settle"`
	Repeat            *int     `yaml:"repeat"`
	Sidecar           []string `yaml:"sidecar"`
	SidecarTokenFile  string   `yaml:"sidecar_token_file"`
	ReportFile        []string `yaml:"report_file"`
	Reconnect         string   `yaml:"reconnect"`
	MaxFailedRequests *int     `yaml:"max_failed_requests"`
	MaxUnexplained    *int     `yaml:"max_unexplained"`
	MaxCutStreams     *int     `yaml:"max_cut_streams"`
	MaxLostMessages   *int     `yaml:"max_lost_messages"`
	MaxReconnectP99   *dur     `yaml:"max_reconnect_p99"`
}

type dur time.Duration

// UnmarshalYAML reads 5s; the error names the line.
func (d *dur) UnmarshalYAML(n *yaml.Node) error {
	v, err := time.ParseDuration(n.Value)
	if err != nil {
		return fmt.Errorf("line %d: %q is no duration such as 5s", n.Line, n.Value)
	}
	*d = dur(v)
	return nil
}

// ReadPlan reads a plan file into p. Every error names its line.
func ReadPlan(b []byte, p *Plan) error {
	dec := yaml.NewDecoder(bytes.NewReader(b))
	dec.KnownFields(true)
	var f file
	if err := dec.Decode(&f); err != nil {
		if errors.Is(err, io.EOF) {
			return errors.New("line 1: the plan is empty")
		}
		return errors.New(strings.TrimSpace(strings.TrimPrefix(err.Error(), "yaml: unmarshal errors:\n")))
	}
	if err := dec.Decode(new(file)); !errors.Is(err, io.EOF) {
		return errors.New("more than one document")
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(b, &doc); err != nil {
		return err
	}
	at := func(key string, i int) int { return lineOf(&doc, key, i) }
	for i, text := range f.Load {
		s, err := load.ParseSpec(text)
		if err != nil {
			return fmt.Errorf("line %d: load: %w", at("load", i), err)
		}
		p.Loads = append(p.Loads, s)
	}
	set := func(to *time.Duration, v *dur) {
		if v != nil {
			*to = time.Duration(*v)
		}
	}
	set(&p.Warmup, f.Warmup)
	set(&p.Baseline, f.Baseline)
	set(&p.For, f.For)
	set(&p.Settle, f.Settle)
	set(&p.Limits.ReconnectP99, f.MaxReconnectP99)
	for to, v := range map[*int]*int{&p.Repeat: f.Repeat, &p.Limits.FailedRequests: f.MaxFailedRequests, &p.Limits.Unexplained: f.MaxUnexplained, &p.Limits.CutStreams: f.MaxCutStreams, &p.Limits.LostMessages: f.MaxLostMessages} {
		if v != nil {
			*to = *v
		}
	}
	p.Sidecars, p.ReportFiles, p.TokenFile = append(p.Sidecars, f.Sidecar...), append(p.ReportFiles, f.ReportFile...), f.SidecarTokenFile
	if f.Reconnect != "" {
		p.Reconnect = load.Reconnect(f.Reconnect)
	}
	target, err := NewTarget(f.SignalPID, f.Signal, f.Exec, f.None)
	if err != nil {
		line := 0
		for _, key := range []string{"signal_pid", "signal", "exec", "none"} {
			line = max(line, at(key, -1))
		}
		return fmt.Errorf("line %d: %w", max(line, 1), err)
	}
	if target != nil {
		p.Target = target
	}
	if err := p.Validate(); err != nil {
		for _, key := range []string{"baseline", "warmup", "for", "settle", "repeat", "reconnect", "max_failed_requests", "max_unexplained", "max_reconnect_p99", "max_cut_streams", "max_lost_messages"} {
			if strings.Contains(err.Error(), "--"+strings.ReplaceAll(key, "_", "-")) {
				if line := at(key, -1); line > 0 {
					return fmt.Errorf("line %d: %w", line, err)
				}
			}
		}
		return err
	}
	return nil
}

// lineOf finds a key of the top level, or its i-th item; 0: it is not there.
func lineOf(doc *yaml.Node, key string, i int) int {
	if len(doc.Content) == 0 || doc.Content[0].Kind != yaml.MappingNode {
		return 0
	}
	top := doc.Content[0].Content
	for k := 0; k+1 < len(top); k += 2 {
		if top[k].Value != key {
			continue
		}
		if v := top[k+1]; i >= 0 && i < len(v.Content) {
			return v.Content[i].Line
		}
		return top[k].Line
	}
	return 0
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
