package tracker

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// shortPath is how much of a path the short form keeps, in bytes.
const shortPath = 64

// MaxShort is what a termination message may hold, in bytes (Kubernetes: container's terminationMessagePath).
const MaxShort = 4096

// shortSurvivor is a record in the short form.
type shortSurvivor struct {
	ID     string   `json:"id"`
	Kind   Kind     `json:"kind"`
	Client string   `json:"client"`
	Path   string   `json:"path,omitempty"`
	Age    Seconds  `json:"age_s"`
	Fate   Fate     `json:"fate"` // "": still open
	By     string   `json:"by,omitempty"`
	How    string   `json:"how,omitempty"`
	At     *Seconds `json:"at_s,omitempty"` // after the drain began
}

type shortBooks struct {
	Opened uint64 `json:"opened"`
	Open   uint64 `json:"open"`
}

type shortAdvice struct {
	P50      Estimate `json:"grace_p50"`
	P90      Estimate `json:"grace_p90"`
	P99      Estimate `json:"grace_p99"`
	Lameduck Estimate `json:"lameduck"`
}

// Short is the report in at most maxBytes bytes of JSON (nothing if not even {} fits): the drain, the fates, the late
// arrivals, the books, the advice, then as many survivors as fit, the worst fates first. What had no room is named in
// "left_out": sections, and the number of survivors.
func (rep Report) Short(maxBytes int) []byte {
	sections := []struct {
		name  string
		value any
	}{
		{"phase", rep.Phase},
		{"trigger", clipString(rep.Trigger, shortPath)},
		{"took_s", rep.Took},
		{"survivors", struct {
			Connections SurvivorFates `json:"connections"`
			Streams     SurvivorFates `json:"streams"`
		}{rep.Survivors.Connections, rep.Survivors.Streams}},
		{"ended_in_drain", rep.Drained},
		{"late", rep.Late},
		{"books", map[string]shortBooks{
			"connections": {rep.Connections.Opened, rep.Connections.Open}, "streams": {rep.Streams.Opened, rep.Streams.Open},
		}},
		{"problem", clipString(rep.Problem, 2*shortPath)},
		{"advice", shortAdvice{rep.Advice.GracePeriod.P50, rep.Advice.GracePeriod.P90, rep.Advice.GracePeriod.P99, rep.Advice.Lameduck}},
		{"farewells", rep.Farewells},
		{"fate_lines_dropped", rep.FateLinesDropped},
		{"started_at", rep.StartedAt},
		{"deadline", rep.Deadline},
	}
	const leftOut = `"left_out":{"survivors":18446744073709551615,"sections":[]}}`
	reserve := len(leftOut)
	for _, s := range sections {
		reserve += len(s.name) + len(`"",`)
	}

	w := shortWriter{room: maxBytes - reserve}
	var skipped []string
	for _, s := range sections {
		if !w.member(s.name, marshal(s.value)) {
			skipped = append(skipped, strconv.Quote(s.name))
		}
	}
	left := rep.Survivors.Streams.Total - w.survivors(rep.worst())
	if len(skipped) > 0 || left > 0 {
		// Its room was kept free, unless maxBytes has no room for anything.
		w.room = maxBytes - len("}")
		w.member("left_out", []byte(`{"survivors":`+strconv.FormatUint(left, 10)+`,"sections":[`+strings.Join(skipped, ",")+`]}`))
	}
	if maxBytes < len("{}") {
		return nil
	}
	return w.close()
}

// worst are the survivors in the order of how much somebody will want to know of them.
func (rep *Report) worst() []*Record {
	recs := make([]*Record, len(rep.Survivors.Records))
	for i := range recs {
		recs[i] = &rep.Survivors.Records[i]
	}
	slices.SortStableFunc(recs, func(a, b *Record) int { return cmp.Compare(severity(a.Fate), severity(b.Fate)) })
	return recs
}

// severity orders fates, the worst first.
func severity(f Fate) int {
	switch f {
	case FateOpen, Lost, Failed:
		return 0
	case Cut:
		return 1
	case Aborted:
		return 2
	case Ended:
		return 3
	case Unreachable, TimedOut, Kicked, Rejected:
		return 4
	case Drained, Completed, numFates:
		return 5
	}
	return 5
}

// shortWriter writes a JSON object into limited room.
type shortWriter struct {
	buf  bytes.Buffer
	room int
}

// member adds a member if it fits.
func (w *shortWriter) member(name string, value []byte) bool {
	need := len(name) + len(value) + len(`,"":`)
	if w.buf.Len()+need > w.room {
		return false
	}
	w.open(name)
	w.buf.Write(value)
	return true
}

func (w *shortWriter) open(name string) {
	if w.buf.Len() == 0 {
		w.buf.WriteByte('{')
	} else {
		w.buf.WriteByte(',')
	}
	w.buf.WriteString(`"` + name + `":`)
}

// survivors adds a list of as many records as fit and returns how many did.
func (w *shortWriter) survivors(recs []*Record) (n uint64) {
	for _, r := range recs {
		s := shortSurvivor{
			ID: r.ID, Kind: r.Kind, Client: clipString(r.Client, shortPath), Path: clipString(r.Path, shortPath),
			Age: r.Age, Fate: r.Fate, At: r.DrainOffset,
		}
		if r.Fate != FateOpen {
			s.By, s.How = r.By.String(), r.How.String()
		}
		b := marshal(s)
		head := len(`,"records":[]`)
		if n > 0 {
			head = len(`,]`)
		}
		if w.buf.Len()+head+len(b) > w.room {
			break
		}
		if n == 0 {
			w.open("records")
			w.buf.WriteByte('[')
		} else {
			w.buf.WriteByte(',')
		}
		w.buf.Write(b)
		n++
	}
	if n > 0 {
		w.buf.WriteByte(']')
	}
	return n
}

func (w *shortWriter) close() []byte {
	if w.buf.Len() == 0 {
		w.buf.WriteByte('{')
	}
	w.buf.WriteByte('}')
	return w.buf.Bytes()
}

func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil { // every type here marshals
		return []byte("null")
	}
	return b
}
