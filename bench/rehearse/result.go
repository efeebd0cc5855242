package rehearse

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Schema names the form of a Result; a change that breaks readers changes it.
const Schema = "lastcall.rehearse/v1"

// Result is what a rehearsal found. Times are in milliseconds from when the client's stream was taken, or seconds from the
// rehearsal's start (at_s).
type Result struct {
	Schema  string   `json:"schema"`
	Verdict string   `json:"verdict" jsonschema:"enum=met,enum=not_met,enum=none"` // met, not_met or none
	Reason  string   `json:"reason"`                                               // of not_met and none
	Partial bool     `json:"partial"`                                              // interrupted, or a sidecar was lost
	Started string   `json:"started_at"`
	Plan    Told     `json:"plan"`
	Streams int      `json:"streams"` // open, of the kinds asked for
	Picked  int      `json:"picked"`  // of them
	Conns   int      `json:"connections"`
	Others  int      `json:"other_streams"` // open, of kinds not asked for or that the mode has nothing for
	Missed  int      `json:"missed"`        // were gone, had had their goodbye, or their protocol has no word for it
	Shared  bool     `json:"shared_keys"`   // several clients could not be told apart: matched in order of waiting
	Unseen  uint64   `json:"events_missed"` // the sidecars told more than could be kept
	Watched float64  `json:"watched_s"`
	All     Group    `json:"all"`
	Classes []Group  `json:"classes"`
	Clients []Client `json:"clients"`
	Limits  []Judged `json:"thresholds"`
	Advice  []string `json:"advice"`
}

// Told is the plan as it was carried out.
type Told struct {
	Sidecar  string   `json:"sidecar"`
	Landing  []string `json:"landing"`
	Mode     string   `json:"mode"`
	Kinds    []string `json:"kinds"`
	Share    float64  `json:"share"`
	OverS    float64  `json:"over_s"`
	HoldS    float64  `json:"hold_s"`
	WatchS   float64  `json:"watch_s"`
	Identity string   `json:"identity"`
}

// Group is one class of clients, or all.
type Group struct {
	Class     string         `json:"class"`
	Clients   int            `json:"clients"`
	Outcomes  map[string]int `json:"outcomes"` // returned, stayed, never, not_watched
	Notice    Quantiles      `json:"time_to_notice_ms"`
	First     Quantiles      `json:"time_to_first_attempt_ms"`
	Reconnect Quantiles      `json:"time_to_reconnect_ms"`
	Attempts  float64        `json:"attempts_mean"`
	MostTries int            `json:"attempts_max"`
	Peak      int            `json:"peak_per_100ms"`
	Bunching  float64        `json:"bunching"`
}

// Client is one client.
type Client struct {
	Key       string   `json:"key"`
	Stream    string   `json:"stream"`
	Kind      string   `json:"kind"`
	Class     string   `json:"class"`
	Outcome   string   `json:"outcome"`
	TakenAt   float64  `json:"at_s"`
	Notice    *float64 `json:"notice_ms,omitempty"`
	First     *float64 `json:"first_attempt_ms,omitempty"`
	Reconnect *float64 `json:"reconnect_ms,omitempty"`
	Attempts  int      `json:"attempts"`
	Landed    string   `json:"landed,omitempty"` // the sidecar it came back to
	NewStream string   `json:"new_stream,omitempty"`
}

// Judged is one limit.
type Judged struct {
	Name    string  `json:"name"`
	Limit   float64 `json:"limit"`
	Actual  float64 `json:"actual"`
	AtLeast bool    `json:"at_least,omitempty"` // a lower bound: clients were still away when the watch ended. Never OK
	OK      bool    `json:"ok"`
}

// outcome is the sidecar's word for what became of a client.
func (c *client) outcome(watched bool) string {
	switch {
	case c.back != nil:
		return "returned"
	case !watched:
		return "not_watched"
	case c.class() == Stayed:
		return "stayed"
	}
	return "never"
}

func group(name string, clients []*client, watched time.Duration, whole bool) Group {
	g := Group{Class: name, Clients: len(clients), Outcomes: map[string]int{}}
	var notice, first, back []time.Duration
	var arrivals []time.Time
	tries := 0
	for _, c := range clients {
		g.Outcomes[c.outcome(whole)]++
		if d := c.notice(); d >= 0 {
			notice = append(notice, d)
		}
		if len(c.attempts) > 0 {
			first = append(first, max(0, c.attempts[0].opened.Sub(c.taken)))
		}
		if c.back != nil {
			back = append(back, max(0, c.back.opened.Sub(c.taken)))
			arrivals = append(arrivals, c.back.opened)
		}
		tries += len(c.attempts)
		g.MostTries = max(g.MostTries, len(c.attempts))
	}
	g.Notice, g.First, g.Reconnect = quantiles(notice), quantiles(first), quantiles(back)
	if len(clients) > 0 {
		g.Attempts = float64(tries) / float64(len(clients))
	}
	g.Peak, g.Bunching = bunching(arrivals, watched)
	return g
}

// fill turns the clients into the document's parts.
func (r *Result) fill(clients []*client, start time.Time, watched time.Duration, whole bool) {
	r.Watched = watched.Seconds()
	r.All = group("all", clients, watched, whole)
	byClass := map[Class][]*client{}
	for _, c := range clients {
		class := c.class()
		if c.back == nil && !whole {
			class = Unknown
		}
		byClass[class] = append(byClass[class], c)
		out := Client{Key: c.key, Stream: c.from.id, Kind: c.kind, Class: string(class), Outcome: c.outcome(whole), TakenAt: c.taken.Sub(start).Seconds(), Attempts: len(c.attempts)}
		if d := c.notice(); d >= 0 {
			out.Notice = new(ms(d))
		}
		if len(c.attempts) > 0 {
			out.First = new(ms(max(0, c.attempts[0].opened.Sub(c.taken))))
		}
		if c.back != nil {
			out.Reconnect, out.Landed, out.NewStream = new(ms(max(0, c.back.opened.Sub(c.taken)))), c.back.sidecar, c.back.id
		}
		r.Clients = append(r.Clients, out)
	}
	for _, k := range []Class{Naive, Backoff, Never, Stayed, Unknown} {
		if len(byClass[k]) > 0 {
			r.Classes = append(r.Classes, group(string(k), byClass[k], watched, whole))
		}
	}
	r.advise()
}

func (r *Result) advise() {
	r.Advice = []string{}
	say := func(format string, args ...any) { r.Advice = append(r.Advice, fmt.Sprintf(format, args...)) }
	seen, quick, tried := 0, 0, 0 // clients that tried; of the naive ones, those of which one delay is known, and the others
	for i := range r.Clients {
		c := &r.Clients[i]
		if c.Attempts > 0 {
			seen++
		}
		switch {
		case c.Class != string(Naive):
		case c.Attempts < patternTries:
			quick++
		default:
			tried++
		}
	}
	for _, g := range r.Classes {
		switch Class(g.Class) {
		case Naive:
			if tried > 0 {
				say("%d clients try again at once or at a fixed beat, up to %d were back within 100 ms: give them a first delay with jitter, and a longer one each time", tried, g.Peak)
			}
			if quick > 0 {
				say("%d clients were back at once, up to %d within 100 ms: give them a first delay with jitter", quick, g.Peak)
			}
		case Never:
			say("%d clients did not come back within %.0f s: give them a reconnect, or find out who restarts them", g.Clients, r.Watched)
		case Stayed:
			if r.Plan.Mode == "half-open" {
				say("%d clients did not notice %.0f s of silence: give them a ping with a deadline (WebSocket ping, gRPC keepalive, TCP_USER_TIMEOUT)", g.Clients, r.Plan.HoldS)
			}
		case Backoff, Unknown:
		}
	}
	if r.All.MostTries > 0 && r.All.MostTries < patternTries && seen > 0 && r.Plan.Mode != "goaway" {
		say("all that came back did so at their first tries, which shows one delay each: --mode refuse-new shows the next ones, and who backs off")
	}
	if r.Shared {
		say("several clients look the same, so their tries are shared out among them: configure --identity-header at the sidecar, or client certificates, for figures per client")
	}
}

// judge compares with the limits.
func (r *Result) judge(l Limits) {
	r.Verdict, r.Limits = "met", []Judged{}
	add := func(name string, limit, actual float64, atLeast bool) {
		j := Judged{Name: name, Limit: limit, Actual: actual, AtLeast: atLeast, OK: actual <= limit && !atLeast}
		r.Limits = append(r.Limits, j)
		if !j.OK {
			r.Verdict = "not_met"
			r.Reason = strings.TrimPrefix(r.Reason+fmt.Sprintf("; %s: %s, limit %.4g", name, j.Found(), limit), "; ")
		}
	}
	if l.Never >= 0 {
		add("max-never", float64(l.Never), float64(r.All.Outcomes["never"]), false)
	}
	if l.ReconnectP99 >= 0 {
		actual, atLeast := r.p99()
		add("max-reconnect-p99-ms", ms(l.ReconnectP99), actual, atLeast)
	}
	if l.Bunching >= 0 {
		add("max-bunching", l.Bunching, r.All.Bunching, false)
	}
}

// Found is what was found, for the eye.
func (j Judged) Found() string {
	if j.AtLeast {
		return fmt.Sprintf("> %.4g", j.Actual)
	}
	return fmt.Sprintf("%.4g", j.Actual)
}

// p99 is how long all but one in a hundred needed to be back. Those who are not count as slower than anybody.
func (r *Result) p99() (ms float64, atLeast bool) {
	var back []float64
	for i := range r.Clients {
		if c := &r.Clients[i]; c.Reconnect != nil {
			back = append(back, *c.Reconnect)
		}
	}
	n := len(back) + r.All.Outcomes["never"]
	if n == 0 {
		return 0, false
	}
	slices.Sort(back)
	if i := min(n-1, n*99/100); i < len(back) {
		return back[i], false
	}
	return r.Plan.WatchS * 1e3, true
}

// Text is the summary for a terminal.
func (r *Result) Text(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", r.headline())
	if r.Partial {
		b.WriteString("PARTIAL: it was interrupted, or a sidecar was lost; what follows is not the whole story\n")
	}
	if r.Others > 0 {
		fmt.Fprintf(&b, "%d more open streams are of other kinds, or this mode has nothing for them\n", r.Others)
	}
	if r.Missed > 0 {
		fmt.Fprintf(&b, "%d connections were gone before their turn, had had their goodbye already, or their protocol has no word for it\n", r.Missed)
	}
	for _, o := range []string{"returned", "stayed", "never", "not_watched"} {
		if n := r.All.Outcomes[o]; n > 0 {
			fmt.Fprintf(&b, "  %-12s %d\n", strings.ReplaceAll(o, "_", " "), n)
		}
	}
	b.WriteByte('\n')
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(t, "class\tclients\tnotice p50\tp99\tback p50\tp99\tmax\ttries mean\tmax\tpeak/100ms\tbunching\t")
	for _, g := range append(slices.Clone(r.Classes), r.All) {
		_, _ = fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%.1f\t%d\t%d\t%.1f\t\n", g.Class, g.Clients, cell(g.Notice, g.Notice.P50), cell(g.Notice, g.Notice.P99),
			cell(g.Reconnect, g.Reconnect.P50), cell(g.Reconnect, g.Reconnect.P99), cell(g.Reconnect, g.Reconnect.Max), g.Attempts, g.MostTries, g.Peak, g.Bunching)
	}
	_ = t.Flush()
	for _, a := range r.Advice {
		fmt.Fprintf(&b, "- %s\n", a)
	}
	for _, j := range r.Limits {
		ok := "ok"
		if !j.OK {
			ok = "NOT MET"
		}
		fmt.Fprintf(&b, "%s: %s, limit %.4g: %s\n", j.Name, j.Found(), j.Limit, ok)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
