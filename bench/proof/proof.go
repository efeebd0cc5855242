// Package proof is what a proof says: the JSON document lastcall.prove/v1 and its other forms, for a terminal, a pull
// request (Markdown), a build server (JUnit XML) and a change board (one HTML page).
//
// Times are seconds from the trigger, negative before it.
package proof

// Schema names the document's form. What scripts read is only ever added to.
const Schema = "lastcall.prove/v1"

// Verdict is what a proof comes to.
type Verdict string

// Verdicts.
const (
	Proven    Verdict = "proven"
	NotProven Verdict = "not_proven"
	NoVerdict Verdict = "no_verdict" // nothing can be said: the baseline erred, or nothing was there
)

// Proof is the whole document.
type Proof struct {
	Schema     string      `json:"schema"`
	Verdict    Verdict     `json:"verdict" jsonschema:"enum=proven,enum=not_proven,enum=no_verdict"`
	Reason     string      `json:"reason"`
	Partial    bool        `json:"partial"` // it was broken off: what is there is true, but not all
	At         string      `json:"at"`      // RFC 3339, of the first trigger
	Trigger    string      `json:"trigger"`
	Runs       []Run       `json:"runs"`
	Thresholds []Threshold `json:"thresholds"`
	Cost       Cost        `json:"cost"`
}

// Cost is what the load side itself took.
type Cost struct {
	CPU    float64 `json:"cpu_s"`
	Memory float64 `json:"peak_mib"`
}

// Threshold is a limit with what was found; of several runs, the worst.
type Threshold struct {
	Name   string  `json:"name"`
	Limit  float64 `json:"limit"`
	Actual float64 `json:"actual"`
	// AtLeast: what was found is a lower bound, since it had not come to its end when the run did. It is never OK.
	AtLeast bool `json:"at_least,omitempty"`
	OK      bool `json:"ok"`
}

// Run is one trigger with what was before and after.
type Run struct {
	Baseline    Baseline  `json:"baseline"`
	Phases      []Phase   `json:"phases"`
	Loads       []Load    `json:"loads"`
	Failures    []Failure `json:"failures"`
	Omitted     uint64    `json:"failures_omitted"` // more than a ledger keeps
	Unexplained int       `json:"unexplained"`
	Advice      []string  `json:"advice"` // each begins with who could change something: "client: …" or "server: …"
	Sidecars    []Sidecar `json:"sidecars"`
	// Unfinished is the phase of a sidecar's drain that had not come to its end, nor to the closing window, when the loads
	// stopped, or "command" where --exec's still ran: then nothing is proven by what did not happen yet.
	Unfinished string   `json:"unfinished_phase,omitempty"`
	Running    bool     `json:"target_running"`                                      // the signalled process was there when the loads stopped
	Exited     *float64 `json:"target_exited_s" jsonschema:"oneof_type=number;null"` // when the signalled process was gone; null: it was not seen to go
	End        float64  `json:"end_s"`
}

// Baseline is the steady time before the trigger.
type Baseline struct {
	Seconds   float64 `json:"seconds"`
	Attempted uint64  `json:"attempted"`
	Failed    uint64  `json:"failed"`
}

// Phase is a span of the run.
type Phase struct {
	Name string  `json:"name"`
	From float64 `json:"from_s"`
	To   float64 `json:"to_s"`
}

// Load is one load's account.
type Load struct {
	Kind      string            `json:"kind"`
	Target    string            `json:"target"`
	Attempted uint64            `json:"attempted"`
	Succeeded uint64            `json:"succeeded"`
	Failed    uint64            `json:"failed"`
	Faults    uint64            `json:"faults"` // beside: messages of sessions that went wrong, answers that nobody asked for
	Outcomes  map[string]uint64 `json:"outcomes"`
	Latency   Latency           `json:"latency_ms"`
	// Connections are its clients', TCP.
	Connections Connections `json:"connections"`
	Sessions    *Sessions   `json:"sessions,omitempty"`
	Timeline    Timeline    `json:"timeline"`
}

// Connections are counted at the client's end: what its kernel counts, too.
type Connections struct {
	Opened  uint64 `json:"opened"`
	Refused uint64 `json:"refused"` // nobody listened, or took it
	Failed  uint64 `json:"failed"`  // no answer, no way, or given up
	Bytes   Bytes  `json:"bytes"`
}

// Bytes are what went over TCP, the framing of TLS and of the protocol among them.
type Bytes struct {
	Sent     uint64 `json:"sent"`
	Received uint64 `json:"received"`
}

// Latency is of good requests, from the moment each was due.
type Latency struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// Sessions is the account of a long-lived kind.
type Sessions struct {
	Opened      int               `json:"opened"`
	Ended       int               `json:"ended"` // by the server, or broken
	Cut         int               `json:"cut"`   // of those, without its protocol's goodbye
	Reconnected int               `json:"reconnected"`
	Away        int               `json:"away"` // clients that would come back and were not when the run ended
	Outcomes    map[string]uint64 `json:"outcomes"`
	Messages    Messages          `json:"messages"`
	ReconnectMS []float64         `json:"reconnect_ms"` // each return, sorted
	AwayMS      []float64         `json:"away_ms"`      // how long each of those had been away, sorted
}

// Messages are counted by their numbers.
type Messages struct {
	Sent       uint64 `json:"sent"`
	Received   uint64 `json:"received"`
	Lost       uint64 `json:"lost"`
	Duplicated uint64 `json:"duplicated"`
	Reordered  uint64 `json:"reordered"`
	Unanswered uint64 `json:"unanswered"` // under way when the server said its goodbye: the client knows, and may send again
}

// Timeline has a value per slice.
type Timeline struct {
	From   float64 `json:"from_s"`
	Slice  float64 `json:"slice_s"`
	Open   []int   `json:"open"`
	Begun  []int   `json:"begun"`
	Failed []int   `json:"failed"`
}

// Failure is one thing that a client saw go wrong.
type Failure struct {
	At         float64 `json:"at_s"`
	Phase      string  `json:"phase"`
	Kind       string  `json:"kind"`
	Outcome    string  `json:"outcome"`
	Wire       string  `json:"wire"`
	Attributed string  `json:"attributed_to"` // client, app, lastcall, operator, server (no sidecar saw it), target (nobody listened), unexplained
	FateID     string  `json:"fate_id"`
	Fate       string  `json:"fate,omitempty"` // what the sidecar says of it
	Local      string  `json:"local,omitempty"`
	Session    bool    `json:"session,omitempty"`
	Bytes      *Bytes  `json:"bytes,omitempty"` // of its connection up to then, earlier requests' among them
}

// Sidecar is what one sidecar has told.
type Sidecar struct {
	Addr      string            `json:"addr"`
	Reachable bool              `json:"reachable"`
	Problem   string            `json:"problem,omitempty"`
	Records   int               `json:"records"`
	Fates     map[string]uint64 `json:"fates"` // of streams, as "fate by party"
	Late      []float64         `json:"late_s"`
	Survivors []Survivor        `json:"survivors"`
	Advice    []string          `json:"advice"`
}

// Survivor is a stream that was open when the drain began.
type Survivor struct {
	ID   string  `json:"id"`
	Kind string  `json:"kind"`
	Path string  `json:"path"`
	Age  float64 `json:"age_s"`
	Fate string  `json:"fate"`
	By   string  `json:"by"`
	End  float64 `json:"end_s"`
}
