package config

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// Loader fills a Config from flags, environment and a file. Every flag is also LASTCALL_… in the environment and a
// snake_case key of the file; a flag beats the environment, which beats the file.
type Loader struct {
	fs      *pflag.FlagSet
	cfg     Config
	file    string
	inbound []string
}

// Bind defines the flags on a set and returns the loader that reads them.
func Bind(fs *pflag.FlagSet) *Loader {
	l := &Loader{fs: fs}
	c := &l.cfg
	fs.StringVar(&l.file, "config", "", "YAML file with the flags' names in snake_case, and listeners in full")
	fs.StringArrayVar(&l.inbound, "inbound", nil, "LISTEN=APP[,option=value…]: what to serve, and the app behind it (host:port or unix:PATH)")
	fs.StringVar(&c.TransparentInbound, "transparent-inbound", "", "where redirected inbound connections arrive, such as :4180")
	fs.StringVar(&c.TransparentOutbound, "transparent-outbound", "", "where redirected outbound connections arrive, such as :4181")
	fs.StringVar(&c.Telemetry, "telemetry", ":4182", "where /livez, /readyz, /metrics and the hooks are served")
	fs.StringVar(&c.Admin, "admin", "127.0.0.1:4183", "where the admin API is served; not on loopback it needs --admin-token-file")
	fs.StringVar(&c.adminTokenFile, "admin-token-file", "", "file with the bearer token of the admin API")
	fs.StringVar(&c.hookTokenFile, "hook-token-file", "", "file with the token in the hooks' paths; without it there are no hooks")
	fs.DurationVar(&c.Lameduck, "lameduck", 5*time.Second, "how long after the drain's trigger everything new is still served")
	fs.DurationVar(&c.DrainTimeout, "drain-timeout", 0, "what is open this long after the trigger is cut (default: --grace-period minus 2s but at least half of it, else 30s)")
	fs.DurationVar(&c.ClosingWindow, "closing-window", 5*time.Second, "the last part of the drain, in which long-lived streams are ended politely")
	fs.DurationVar(&c.GracePeriod, "grace-period", 0, "the pod's terminationGracePeriodSeconds, if known")
	fs.DurationVar(&c.FinalScrape, "final-scrape", 0, "how long /metrics waits, after the last connection, for one more scrape")
	fs.StringVar(&c.Late, "late", "reject", "what late arrivals get: reject, serve or refuse")
	fs.StringVar(&c.LongLived, "long-lived", "wait", "when long-lived streams are ended: wait (for the closing window) or spread (over the drain)")
	fs.BoolVar(&c.StrictExit, "strict-exit", false, "exit with 3 when a drain cut, aborted or lost anything")
	fs.DurationVar(&c.LongLivedAfter, "long-lived-after", 10*time.Second, "the age from which any stream counts as long-lived")
	fs.IntVar(&c.MaxConnections, "max-connections", 0, "most connections at once (default: from the descriptor limit)")
	fs.IntVar(&c.Loops, "loops", 0, "event loops (default: one per processor, four at most)")
	fs.DurationVar(&c.DialTimeout, "dial-timeout", 10*time.Second, "how long reaching the app may take")
	fs.DurationVar(&c.IdleTimeout, "idle-timeout", 0, "close connections that are silent for this long (default: never)")
	fs.DurationVar(&c.KeepAlive, "tcp-keepalive", 0, "idle time before TCP keepalive probes (default: the kernel's)")
	fs.DurationVar(&c.UserTimeout, "tcp-user-timeout", 0, "TCP_USER_TIMEOUT; it also ends clients that merely don't read (default: off)")
	fs.StringVar(&c.ReportFile, "report-file", "", "where the report goes at the end, as JSON")
	fs.StringVar(&c.Journal, "journal", "", "small file, on a volume that outlives the container, by which the next start finds what was lost in a crash")
	fs.StringVar(&c.TerminationMessage, "termination-message", defaultTermination(), "where the report's short form goes (4096 bytes at most)")
	fs.StringVar(&c.FateLog, "fate-log", "-", "where fate lines go: a file, or - for beside the log on stderr")
	fs.IntVar(&c.FateLogRequests, "fate-log-requests", 20, "fate lines per second for ordinary requests (-1: all, 0: none); others always have one")
	fs.StringVar(&c.LogLevel, "log-level", "info", "debug, info, warn or error")
	fs.StringVar(&c.LogFormat, "log-format", "json", "json or console")
	fs.BoolVar(&c.DropPaths, "drop-paths", false, "keep request paths out of records")
	fs.StringVar(&c.IdentityHeader, "identity-header", "", "request header whose value tells clients apart in records, as peer.identity (default: only client certificates do)")
	fs.StringSliceVar(&c.Probes, "probe-agents", DefaultProbes(), "user agents' prefixes of probes, which never hold a drain")
	fs.StringSliceVar(&c.Scrapers, "scrape-agents", DefaultScrapers(), "user agents' prefixes of scrapes, which never hold a drain")
	fs.StringVar(&c.Pod, "pod", "", "the pod's name (POD_NAME)")
	fs.StringVar(&c.Namespace, "namespace", "", "the pod's namespace (POD_NAMESPACE)")
	fs.StringVar(&c.Node, "node", "", "the node's name (NODE_NAME)")
	fs.BoolVar(&c.Observe, "observe", true, "watch protocols; false turns the sidecar into a bare relay, for the benchmark")
	if err := fs.MarkHidden("observe"); err != nil {
		panic(err) // the flag was defined a line above
	}
	return l
}

// defaultTermination is Kubernetes' default path, where there is one.
func defaultTermination() string {
	const path = "/dev/termination-log"
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

// Load reads what the flags left open from the environment and the file, then validates the whole. Each error is one line
// that names the flag, the variable, or the file's line.
func (l *Loader) Load(getenv func(string) string) (*Config, error) {
	set := make(map[string]bool)
	l.fs.Visit(func(f *pflag.Flag) { set[f.Name] = true })
	var errs []error
	l.fs.VisitAll(func(f *pflag.Flag) {
		name := "LASTCALL_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		v := getenv(name)
		if set[f.Name] || v == "" || f.Name == "help" {
			return
		}
		set[f.Name] = true
		if err := l.assign(f, v); err != nil {
			errs = append(errs, fmt.Errorf("%s=%q: %w", name, v, err))
		}
	})
	if len(errs) > 0 {
		return nil, errs[0]
	}
	for flag, name := range map[string]string{"pod": "POD_NAME", "namespace": "POD_NAMESPACE", "node": "NODE_NAME"} {
		if v := getenv(name); v != "" && !set[flag] {
			if err := l.fs.Set(flag, v); err != nil {
				return nil, fmt.Errorf("%s=%q: %w", name, v, err)
			}
		}
	}
	for i, v := range l.inbound {
		ln, err := parseInbound(v)
		if err != nil {
			return nil, fmt.Errorf("--inbound %q: %w", l.inbound[i], err)
		}
		l.cfg.Inbound = append(l.cfg.Inbound, ln)
	}
	if l.file != "" {
		if err := l.readFile(set); err != nil {
			return nil, err
		}
	}
	if err := l.cfg.finish(func(name string) bool { return set[name] }); err != nil {
		return nil, err
	}
	return &l.cfg, nil
}

func (l *Loader) assign(f *pflag.Flag, v string) error {
	if f.Name == "inbound" { // several, separated by white space
		l.inbound = strings.Fields(v)
		return nil
	}
	return f.Value.Set(v)
}

// readFile reads the strict YAML file: an unknown key is an error.
func (l *Loader) readFile(set map[string]bool) error {
	b, err := os.ReadFile(l.file)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(b, &doc); err != nil {
		return fmt.Errorf("--config %s: %s", l.file, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if len(doc.Content) == 0 {
		return nil
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return fmt.Errorf("--config %s: line %d: want keys and values", l.file, root.Line)
	}
	seen := make(map[string]bool)
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, val := root.Content[i], root.Content[i+1]
		fail := func(err error) error {
			return fmt.Errorf("--config %s: line %d: %s: %w", l.file, key.Line, key.Value, err)
		}
		if seen[key.Value] {
			return fail(errors.New("given twice"))
		}
		seen[key.Value] = true
		flag := strings.ReplaceAll(key.Value, "_", "-")
		f := l.fs.Lookup(flag)
		if f == nil || flag == "config" || flag == "help" || strings.Contains(key.Value, "-") {
			return fail(errors.New("unknown key"))
		}
		if set[flag] {
			continue
		}
		set[flag] = true
		if flag == "inbound" {
			if err := l.fileListeners(val); err != nil {
				return fail(err)
			}
			continue
		}
		if err := setNode(f, val); err != nil {
			return fail(err)
		}
	}
	return nil
}

func setNode(f *pflag.Flag, val *yaml.Node) error {
	switch val.Kind {
	case yaml.ScalarNode:
		return f.Value.Set(val.Value)
	case yaml.SequenceNode:
		if s, ok := f.Value.(pflag.SliceValue); ok {
			var list []string
			if err := val.Decode(&list); err != nil {
				return err
			}
			return s.Replace(list)
		}
	}
	return errors.New("want a single value")
}

func (l *Loader) fileListeners(val *yaml.Node) error {
	if val.Kind != yaml.SequenceNode {
		return errors.New("want a list of listeners")
	}
	for _, item := range val.Content {
		if item.Kind == yaml.ScalarNode {
			ln, err := parseInbound(item.Value)
			if err != nil {
				return fmt.Errorf("line %d: %w", item.Line, err)
			}
			l.cfg.Inbound = append(l.cfg.Inbound, ln)
			continue
		}
		if item.Kind != yaml.MappingNode {
			return fmt.Errorf("line %d: want a listener", item.Line)
		}
		for i := 0; i+1 < len(item.Content); i += 2 {
			switch k := item.Content[i]; k.Value {
			case "name", "listen", "app", "proxy_protocol", "send_proxy_protocol", "forwarded_headers":
			case "tls":
				if err := known(item.Content[i+1], "cert", "key", "client_ca", "client_auth", "min_version", "alpn", "handshake_timeout"); err != nil {
					return fmt.Errorf("tls: %w", err)
				}
			case "app_tls":
				if err := known(item.Content[i+1], "ca", "server_name", "insecure", "cert", "key"); err != nil {
					return fmt.Errorf("app_tls: %w", err)
				}
			default:
				return fmt.Errorf("line %d: %s: unknown key", k.Line, k.Value)
			}
		}
		var ln Listener
		if err := item.Decode(&ln); err != nil {
			return fmt.Errorf("line %d: %s", item.Line, strings.TrimPrefix(err.Error(), "yaml: "))
		}
		if err := ln.validate(); err != nil {
			return fmt.Errorf("line %d: %w", item.Line, err)
		}
		l.cfg.Inbound = append(l.cfg.Inbound, ln)
	}
	return nil
}

// known checks a mapping's keys.
func known(n *yaml.Node, keys ...string) error {
	if n.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: want keys and values", n.Line)
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if k := n.Content[i]; !slices.Contains(keys, k.Value) {
			return fmt.Errorf("line %d: %s: unknown key", k.Line, k.Value)
		}
	}
	return nil
}
