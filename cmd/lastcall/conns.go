package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lastcall-proxy/lastcall/tracker"
)

// row is what the tables show of a stream's or connection's record.
type row struct {
	ID        string `json:"id"`
	Kind      string `json:"kind"`
	Client    string `json:"client"`
	App       string `json:"app"`
	Method    string `json:"method"`
	Path      string `json:"path"`
	Authority string `json:"authority"`
	Age       float64
	Idle      struct{ Client, App float64 } `json:"idle_s"`
	Bytes     struct{ Client, App uint64 }
	Messages  struct{ Client, App uint64 }
	Waiting   string `json:"waiting_on"`
	Half      string `json:"half_closed"`
	Fate      string `json:"fate"`
	By        string `json:"by"`
	How       string `json:"how"`
	Stage     string `json:"stage"`
	Reason    string `json:"reason"`
	Status    string `json:"status"`
}

// UnmarshalJSON reads age_s beside the fields.
func (r *row) UnmarshalJSON(b []byte) error {
	type plain row
	v := struct {
		*plain
		AgeS float64 `json:"age_s"`
	}{plain: (*plain)(r)}
	if err := json.Unmarshal(b, &v); err != nil {
		return err
	}
	r.Age = v.AgeS
	return nil
}

type connsOptions struct {
	client
	watch, open, closed, survivors, connections bool
	kind, output                                string
	older, idle                                 time.Duration
	limit                                       int
}

func connsCommand(stdout io.Writer) *cobra.Command {
	var o connsOptions
	cmd := &cobra.Command{Use: "conns", Short: "List a running sidecar's streams (or connections): who, what, how old, whose turn", Args: cobra.NoArgs}
	o.bind(cmd)
	f := cmd.Flags()
	f.BoolVar(&o.watch, "watch", false, "go on: the table every second, and what ends meanwhile (-o json: a line an event)")
	f.BoolVar(&o.open, "open", false, "those that are open (default)")
	f.BoolVar(&o.closed, "closed", false, "those that ended, with their fates")
	f.BoolVar(&o.survivors, "survivors", false, "those that still hold the drain")
	f.BoolVar(&o.connections, "connections", false, "connections instead of streams")
	f.StringVar(&o.kind, "kind", "", "only this kind, such as websocket")
	f.DurationVar(&o.older, "older", 0, "only those at least this old")
	f.DurationVar(&o.idle, "idle", 0, "only those silent both ways for at least this long")
	f.IntVar(&o.limit, "limit", 1000, "at most this many")
	f.StringVarP(&o.output, "output", "o", "table", "table (80 columns), wide or json")
	cmd.MarkFlagsMutuallyExclusive("open", "closed", "survivors")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.output != "table" && o.output != "wide" && o.output != "json" {
			return fmt.Errorf("-o %q: want table, wide or json", o.output)
		}
		if o.limit < 1 || o.limit > tracker.MaxLimit {
			return fmt.Errorf("--limit %d: want 1 to %d", o.limit, tracker.MaxLimit)
		}
		return o.run(cmd.Context(), stdout)
	}
	return cmd
}

func (o *connsOptions) query() string {
	q := url.Values{"limit": {strconv.Itoa(o.limit)}}
	switch {
	case o.closed:
		q.Set("state", "closed")
	case o.survivors:
		q.Set("state", "survivors")
	}
	if o.kind != "" {
		q.Set("kind", o.kind)
	}
	if o.older > 0 {
		q.Set("older", o.older.String())
	}
	if o.idle > 0 {
		q.Set("idle", o.idle.String())
	}
	return "?" + q.Encode()
}

func (o *connsOptions) run(ctx context.Context, out io.Writer) error {
	what := "streams"
	if o.connections {
		what = "connections"
	}
	if o.watch {
		return o.follow(ctx, out, isTerminal(out))
	}
	var raw map[string]json.RawMessage
	if err := o.ask(ctx, "GET", "/v1/"+what+o.query(), &raw); err != nil {
		return err
	}
	if o.output == "json" {
		b, err := json.Marshal(raw)
		if err != nil {
			return failed(err)
		}
		_, err = fmt.Fprintf(out, "%s\n", b)
		return failed(err)
	}
	var rows []row
	if err := json.Unmarshal(raw[what], &rows); err != nil {
		return failed(fmt.Errorf("answer of %s: %w", o.addr, err))
	}
	if err := table(out, rows, what, o.output == "wide", o.closed); err != nil || o.closed {
		return failed(err)
	}
	return o.disobedient(ctx, out)
}

// patience is how long a client that was told to leave may take before it is named.
const patience = 2 * time.Second

// disobedient names the clients that were told to leave and go on as if they had not been.
func (o *connsOptions) disobedient(ctx context.Context, out io.Writer) error {
	var list struct {
		Connections []struct {
			ID      string `json:"id"`
			Kind    string `json:"kind"`
			Client  string `json:"client"`
			Streams int    `json:"streams"`
			Peer    struct {
				Agent string `json:"user_agent"`
			} `json:"peer"`
			Farewell *struct {
				SentAt time.Time `json:"sent_at"`
				Kind   string    `json:"kind"`
				Began  int       `json:"began_after"`
			} `json:"farewell"`
		} `json:"connections"`
	}
	if err := o.ask(ctx, "GET", "/v1/connections?limit=1000", &list); err != nil {
		return err
	}
	for _, c := range list.Connections {
		f := c.Farewell
		if f == nil || f.Began == 0 && (c.Streams > 0 || time.Since(f.SentAt) < patience) {
			continue // it may finish what was open
		}
		line := fmt.Sprintf("%s (%s, %s) was told to leave (%s) %s ago", c.ID, c.Client, c.Kind, f.Kind, span(time.Since(f.SentAt).Seconds()))
		switch {
		case f.Began > 0:
			line += fmt.Sprintf(" and has begun %d of its streams since", f.Began)
		default:
			line += " and stays, with nothing in flight"
		}
		if c.Peer.Agent != "" {
			line += ": " + c.Peer.Agent
		}
		if _, err := fmt.Fprintln(out, line); err != nil {
			return failed(err)
		}
	}
	return nil
}

// table prints rows for a person: 80 columns, or as wide as it takes.
func table(out io.Writer, rows []row, what string, wide, closed bool) error {
	if len(rows) == 0 {
		_, err := fmt.Fprintf(out, "no %s\n", what)
		return err
	}
	var b strings.Builder
	switch {
	case wide:
		fmt.Fprintf(&b, "%-10s %-9s %-22s %-22s %7s %7s %7s %10s %10s %-8s %-6s %-11s %-9s %-8s %-9s %s\n", "ID", "KIND", "CLIENT", "APP", "AGE", "IDLE-C", "IDLE-A", "BYTES-C", "BYTES-A", "WAITING", "HALF", "FATE", "BY", "HOW", "STAGE", "WHAT")
	case closed:
		fmt.Fprintf(&b, "%-8s %-9s %-21s %6s %-11s %-8s %s\n", "ID", "KIND", "CLIENT", "AGE", "FATE", "BY", "WHAT")
	default:
		fmt.Fprintf(&b, "%-8s %-9s %-21s %6s %6s %6s %-7s %s\n", "ID", "KIND", "CLIENT", "AGE", "IDLE-C", "IDLE-A", "WAITING", "WHAT")
	}
	for i := range rows {
		r := &rows[i]
		target := r.Path
		if target == "" {
			target = r.Authority
		}
		waiting := r.Waiting
		if r.Half != "" {
			waiting += "/" + r.Half[:1] // half-closed by client or app
		}
		switch {
		case wide:
			fmt.Fprintf(&b, "%-10s %-9s %-22s %-22s %7s %7s %7s %10d %10d %-8s %-6s %-11s %-9s %-8s %-9s %s\n", r.ID, r.Kind, r.Client, r.App, span(r.Age), span(r.Idle.Client), span(r.Idle.App), r.Bytes.Client, r.Bytes.App, r.Waiting, r.Half, r.Fate, r.By, r.How, r.Stage, strings.TrimSpace(r.Method+" "+target+" "+r.Reason))
		case closed:
			fmt.Fprintf(&b, "%-8s %-9s %-21s %6s %-11s %-8s %s\n", r.ID, r.Kind, cutTo(r.Client, 21), span(r.Age), r.Fate, r.By, cutTo(target, 11))
		default:
			fmt.Fprintf(&b, "%-8s %-9s %-21s %6s %6s %6s %-7s %s\n", r.ID, r.Kind, cutTo(r.Client, 21), span(r.Age), span(r.Idle.Client), span(r.Idle.App), cutTo(waiting, 8), cutTo(target, 11))
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// cutTo shortens from the left: the end of an address or a path tells more.
func cutTo(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return "<" + s[len(s)-n+1:]
}

// span writes seconds in at most six characters.
func span(s float64) string {
	switch {
	case s < 100:
		return fmt.Sprintf("%.1fs", s)
	case s < 6000:
		return fmt.Sprintf("%dm%02ds", int(s)/60, int(s)%60)
	case s < 360000:
		return fmt.Sprintf("%dh%02dm", int(s)/3600, int(s)/60%60)
	}
	return fmt.Sprintf("%dd%02dh", int(s)/86400, int(s)/3600%24)
}
