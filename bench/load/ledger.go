package load

import (
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// maxEntries bounds what a ledger keeps one by one; more is counted.
const maxEntries = 100_000

// Slice is the width of the timeline.
const Slice = 100 * time.Millisecond

// Entry is one failed request, or one session, or one message of a session that went wrong.
type Entry struct {
	At       time.Time // when it ended; of a request that was not answered: when that was known
	Began    time.Time
	Outcome  Outcome
	Wire     string
	Local    string // the client's address, which joins with the proxy's record
	Session  bool
	Attempt  int   // of a session: how many times its client had connected before
	Bytes    Bytes // of its connection, up to then
	Messages Messages
}

// Messages are a session's, or a load's.
type Messages struct {
	Sent       uint64 `json:"sent"`
	Received   uint64 `json:"received"`
	Lost       uint64 `json:"lost"`
	Duplicated uint64 `json:"duplicated"`
	Reordered  uint64 `json:"reordered"`
	Unanswered uint64 `json:"unanswered"` // under way when the server said its goodbye
}

func (m *Messages) add(o Messages) {
	m.Sent += o.Sent
	m.Received += o.Received
	m.Lost += o.Lost
	m.Duplicated += o.Duplicated
	m.Reordered += o.Reordered
	m.Unanswered += o.Unanswered
}

// Point is one slice of the timeline.
type Point struct {
	Begun, OK, Failed int
	Open              int // most in flight, or most sessions open, in the slice
}

// Ledger is one load's account. It is safe for concurrent use.
type Ledger struct {
	Spec  Spec
	start time.Time
	books *books

	mu       sync.Mutex
	attempts uint64
	good     uint64
	bad      uint64
	gaps     int  // messages of sessions that are open, missing so far
	aborted  bool // what fails now is our own doing
	outcomes map[Outcome]uint64
	latency  *hdrhistogram.Histogram // of good requests, in µs
	entries  []Entry
	omitted  uint64
	line     []Point
	open     int

	sessions    int // ever opened
	reconnected int
	ended       int
	messages    Messages
	returnTimes []time.Duration // from a session's end to its client's next one
	awayTimes   []time.Duration // of clients that were still on their way when the load ended
	live        int             // sessions open now
}

// newLedger begins an account at start.
func newLedger(s Spec, start time.Time, b *books) *Ledger {
	// 1 µs to 10 minutes with three figures.
	return &Ledger{Spec: s, start: start, books: b, outcomes: map[Outcome]uint64{}, latency: hdrhistogram.New(1, 600e6, 3)}
}

func (l *Ledger) point(at time.Time) *Point {
	i := max(0, int(at.Sub(l.start)/Slice))
	for len(l.line) <= i {
		l.line = append(l.line, Point{Open: l.open + l.live})
	}
	return &l.line[i]
}

// begin notes a request that is due.
func (l *Ledger) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attempts++
	l.open++
	p := l.point(time.Now())
	p.Begun++
	p.Open = max(p.Open, l.open)
}

// end notes how a request ended; due is when it should have been sent.
func (l *Ledger) end(due time.Time, o Outcome, wire, local string) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.point(now)
	l.open--
	if l.aborted && !o.Good() { // broken off by us: it never was
		l.attempts--
		l.unbegin(due)
		return
	}
	l.outcomes[o]++
	if o.Good() {
		l.good++
		p.OK++
		us := max(1, now.Sub(due).Microseconds())
		_ = l.latency.RecordValue(us)
		return
	}
	p.Failed++
	l.bad++
	l.keep(Entry{At: now, Began: due, Outcome: o, Wire: wire, Local: local})
}

// unbegin takes a request that was due then out of the timeline. mu is held.
func (l *Ledger) unbegin(due time.Time) {
	for i := max(0, int(due.Sub(l.start)/Slice)); i < len(l.line); i++ {
		if l.line[i].Begun > 0 {
			l.line[i].Begun--
			return
		}
	}
}

// broken says that what is under way is being broken off.
func (l *Ledger) broken() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.aborted
}

// abort says that what is under way is broken off.
func (l *Ledger) abort() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.aborted = true
}

// missing hears of gaps in the numbers of sessions that are open.
func (l *Ledger) missing(by int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gaps += by
}

// side notes an outcome that is no end of its own, such as a retry of the library's, or a message that was lost.
func (l *Ledger) side(at time.Time, o Outcome, wire, local string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.outcomes[o]++
	if !o.Good() {
		l.point(at).Failed++
		l.keep(Entry{At: at, Began: at, Outcome: o, Wire: wire, Local: local})
	}
}

func (l *Ledger) keep(e Entry) {
	if len(l.entries) >= maxEntries {
		l.omitted++
		return
	}
	e.Wire, e.Bytes = clean(e.Wire), l.books.of(e.Local)
	l.entries = append(l.entries, e)
}

// opened notes a session; away is how long its client had none, 0 for its first.
func (l *Ledger) opened(away time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sessions++
	l.live++
	l.attempts++
	if away > 0 {
		l.reconnected++
		if len(l.returnTimes) < maxEntries {
			l.returnTimes = append(l.returnTimes, away)
		}
	}
	p := l.point(time.Now())
	p.Begun++
	p.Open = max(p.Open, l.live)
}

// away notes a client that was still on its way back when the load ended. There are no more of them than sessions.
func (l *Ledger) away(since time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.awayTimes = append(l.awayTimes, time.Since(since))
}

// closed notes a session's end.
func (l *Ledger) closed(e Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.point(e.At)
	l.live--
	l.outcomes[e.Outcome]++
	l.messages.add(e.Messages)
	e.Session = true
	if e.Outcome.Good() {
		l.good++
		p.OK++
	} else {
		l.bad++
		p.Failed++
	}
	if e.Outcome == OK {
		return // ours: no event
	}
	l.ended++
	l.keep(e)
}

// failed notes a connection attempt of a session that came to nothing.
func (l *Ledger) failed(began time.Time, o Outcome, wire, local string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.aborted {
		return
	}
	l.attempts++
	l.bad++
	l.outcomes[o]++
	p := l.point(time.Now())
	p.Begun++
	p.Failed++
	l.keep(Entry{At: time.Now(), Began: began, Outcome: o, Wire: wire, Local: local})
}

// Account is a ledger's summary.
type Account struct {
	Spec        Spec
	Attempted   uint64
	Succeeded   uint64
	Failed      uint64 // attempts; what went wrong inside a session is in Outcomes and Messages
	Faults      uint64 // what went wrong beside: messages of sessions, answers that nobody asked for
	Gaps        int    // messages of sessions that are open, missing so far
	Outcomes    map[Outcome]uint64
	P50, P90    time.Duration
	P99, Max    time.Duration
	Entries     []Entry
	Omitted     uint64
	Line        []Point
	Sessions    int
	Ended       int
	Reconnected int
	Messages    Messages
	Returns     []time.Duration
	Away        []time.Duration // how long those that would come back and were not had been away when the load ended
	Connections Connections
}

// Account copies the ledger as it stands.
func (l *Ledger) Account() Account {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := Account{
		Spec: l.Spec, Attempted: l.attempts, Succeeded: l.good, Failed: l.bad, Gaps: l.gaps, Outcomes: map[Outcome]uint64{}, Entries: append([]Entry(nil), l.entries...), Omitted: l.omitted,
		Line: append([]Point(nil), l.line...), Sessions: l.sessions, Ended: l.ended, Reconnected: l.reconnected, Messages: l.messages, Returns: append([]time.Duration(nil), l.returnTimes...),
		Away: append([]time.Duration(nil), l.awayTimes...),
		P50:  us(l.latency.ValueAtQuantile(50)), P90: us(l.latency.ValueAtQuantile(90)), P99: us(l.latency.ValueAtQuantile(99)), Max: us(l.latency.Max()),
	}
	for o, n := range l.outcomes {
		a.Outcomes[o] = n
		if !o.Good() {
			a.Faults += n
		}
	}
	a.Faults -= a.Failed
	return a
}

// maxWire bounds what is kept of an error's text.
const maxWire = 300

// clean makes a text of the server's fit for a terminal and for any document.
func clean(s string) string {
	var b strings.Builder
	for _, r := range strings.ToValidUTF8(s, "\uFFFD") {
		if b.Len() >= maxWire {
			b.WriteString("…")
			break
		}
		if !unicode.IsPrint(r) {
			q := strconv.QuoteRune(r)
			b.WriteString(q[1 : len(q)-1])
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

func us(v int64) time.Duration { return time.Duration(v) * time.Microsecond }
