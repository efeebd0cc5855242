package prove

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/lastcall-proxy/lastcall/bench/load"
)

// CommandLine is what was said beside a plan file: it wins.
type CommandLine struct {
	PID          int
	Signal, Exec string
	None         bool
	Given        func(flag string) bool
}

// planFile reads a plan file: its keys are the flags' names in snake_case.
type planFile struct {
	keys map[string]func(*yaml.Node) error
	at   map[string]int // the keys' lines
}

// ReadPlan reads a plan file into p, save what the command line has given; nil: nothing. Every error names its line.
func ReadPlan(b []byte, p *Plan, cli *CommandLine) error {
	if cli == nil {
		cli = &CommandLine{Given: func(string) bool { return false }}
	}
	top, err := mapping(b)
	if err != nil {
		return err
	}
	t, aside, asideTrigger := &CommandLine{}, &Plan{}, &CommandLine{}
	f := &planFile{keys: keysOf(p, t), at: map[string]int{}}
	for key, set := range keysOf(aside, asideTrigger) {
		if cli.Given(strings.ReplaceAll(key, "_", "-")) {
			f.keys[key] = set // it is read all the same: it may be wrong
		}
	}
	if err := f.read(top); err != nil {
		return err
	}
	if cli.Given("signal-pid") || cli.Given("exec") || cli.Given("none") {
		t.PID, t.Exec, t.None = cli.PID, cli.Exec, cli.None
	}
	if cli.Given("signal") {
		t.Signal = cli.Signal
	}
	if p.Target, err = NewTarget(t.PID, t.Signal, t.Exec, t.None); err != nil {
		return f.located(err, "signal_pid", "signal", "exec", "none")
	}
	if err := p.Validate(); err != nil {
		return f.located(err, slices.Sorted(maps.Keys(f.keys))...)
	}
	return nil
}

// located puts the line before an error that names a flag whose key is in the file: the longest name, since some begin as others.
func (f *planFile) located(err error, keys ...string) error {
	best := ""
	for _, key := range keys {
		if f.at[key] > 0 && len(key) > len(best) && strings.Contains(err.Error(), "--"+strings.ReplaceAll(key, "_", "-")) {
			best = key
		}
	}
	if best == "" {
		return err
	}
	return fmt.Errorf("line %d: %w", f.at[best], err)
}

// mapping is the one document's top level.
func mapping(b []byte) (*yaml.Node, error) {
	dec := yaml.NewDecoder(bytes.NewReader(b))
	var doc, more yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, errors.New("line 1: the plan is empty")
	} else if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := dec.Decode(&more); err == nil {
		return nil, fmt.Errorf("line %d: a second document; a plan is one", more.Line)
	} else if !errors.Is(err, io.EOF) {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if len(doc.Content) != 1 || doc.Content[0].Kind != yaml.MappingNode {
		return nil, fmt.Errorf("line %d: want keys with values, such as \"for: 10s\"", max(doc.Line, 1))
	}
	return doc.Content[0], nil
}

func keysOf(p *Plan, t *CommandLine) map[string]func(*yaml.Node) error {
	return map[string]func(*yaml.Node) error{
		"load":                list(p.addLoad, "KIND=TARGET[,key=value…]"),
		"signal_pid":          positive(&t.PID),
		"signal":              text(&t.Signal),
		"exec":                text(&t.Exec),
		"none":                boolean(&t.None),
		"warmup":              duration(&p.Warmup),
		"baseline":            duration(&p.Baseline),
		"for":                 duration(&p.For),
		"settle":              duration(&p.Settle),
		"repeat":              integer(&p.Repeat),
		"sidecar":             list(into(&p.Sidecars), "addresses"),
		"sidecar_token_file":  text(&p.TokenFile),
		"report_file":         list(into(&p.ReportFiles), "paths"),
		"reconnect":           text((*string)(&p.Reconnect)),
		"max_failed_requests": integer(&p.Limits.FailedRequests),
		"max_unexplained":     integer(&p.Limits.Unexplained),
		"max_cut_streams":     integer(&p.Limits.CutStreams),
		"max_lost_messages":   integer(&p.Limits.LostMessages),
		"max_reconnect_p99":   duration(&p.Limits.ReconnectP99),
	}
}

func (f *planFile) read(top *yaml.Node) error {
	for i := 0; i+1 < len(top.Content); i += 2 {
		key, value := top.Content[i], top.Content[i+1]
		for value.Kind == yaml.AliasNode {
			value = value.Alias
		}
		set, known := f.keys[key.Value]
		switch {
		case !known:
			return fmt.Errorf("line %d: unknown key %q; the keys are %s", key.Line, key.Value, strings.Join(slices.Sorted(maps.Keys(f.keys)), ", "))
		case f.at[key.Value] > 0:
			return fmt.Errorf("line %d: %s: was there on line %d already", key.Line, key.Value, f.at[key.Value])
		}
		f.at[key.Value] = key.Line
		if err := set(value); err != nil {
			var at *itemError
			if errors.As(err, &at) {
				return fmt.Errorf("line %d: %s: %w", at.line, key.Value, at.error)
			}
			return fmt.Errorf("line %d: %s: %w", key.Line, key.Value, err)
		}
	}
	return nil
}

// itemError is a list's, with the item's line.
type itemError struct {
	error
	line int
}

func (p *Plan) addLoad(item string) error {
	s, err := load.ParseSpec(item)
	if err != nil {
		return err
	}
	p.Loads = append(p.Loads, s)
	return nil
}

func into(to *[]string) func(string) error {
	return func(item string) error { *to = append(*to, item); return nil }
}

func list(add func(item string) error, of string) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		if n.Kind != yaml.SequenceNode || len(n.Content) == 0 {
			return fmt.Errorf("want a list of %s, each behind a dash", of)
		}
		for _, item := range n.Content {
			if item.Kind == yaml.AliasNode {
				item = item.Alias
			}
			if item.Kind != yaml.ScalarNode {
				return &itemError{fmt.Errorf("want %s in one line", of), item.Line}
			}
			if err := add(item.Value); err != nil {
				return &itemError{err, item.Line}
			}
		}
		return nil
	}
}

// scalar makes a reader of one value from a parser of its text.
func scalar[T any](to *T, want string, parse func(string) (T, error)) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
			return fmt.Errorf("want %s", want)
		}
		v, err := parse(n.Value)
		if err != nil {
			return fmt.Errorf("%q: want %s", n.Value, want)
		}
		*to = v
		return nil
	}
}

func text(to *string) func(*yaml.Node) error {
	return scalar(to, "a text", func(s string) (string, error) { return s, nil })
}

func boolean(to *bool) func(*yaml.Node) error {
	return scalar(to, "true or false", strconv.ParseBool)
}

func integer(to *int) func(*yaml.Node) error {
	return scalar(to, "a whole number", strconv.Atoi)
}

func positive(to *int) func(*yaml.Node) error {
	return scalar(to, "a whole number above 0", func(s string) (int, error) {
		n, err := strconv.Atoi(s)
		if err == nil && n <= 0 {
			err = errors.New("not positive")
		}
		return n, err
	})
}

func duration(to *time.Duration) func(*yaml.Node) error {
	return scalar(to, "a duration such as 5s", time.ParseDuration)
}
