package tracker

import (
	"slices"
)

// maxReportRecords bounds the records in a report.
const maxReportRecords = 10_000

// Report is the account of a drain: what was open when it began and how each ended, what came late, the books of the whole
// process, and advice.
type Report struct {
	Phase     Phase   `json:"phase"`
	Trigger   string  `json:"trigger"`
	StartedAt Time    `json:"started_at"`
	Deadline  Time    `json:"deadline"`
	At        Time    `json:"reported_at"`
	Took      Seconds `json:"took_s"` // from the start of the drain to the report

	// Books of the process's life. Problem is what Check found, empty if the books are in order.
	Connections BooksReport `json:"connections"`
	Streams     BooksReport `json:"streams"`
	Problem     string      `json:"problem"`

	Drained   DrainFates                 `json:"ended_in_drain"`
	Survivors SurvivorsReport            `json:"survivors"`
	Late      LateReport                 `json:"late"`
	Farewells map[string]FarewellsReport `json:"farewells"`
	// OthersFarewells are those the app or the client said by itself.
	OthersFarewells map[string]uint64 `json:"others_farewells"`
	// FateLinesDropped is what Config.LinesDropped says.
	FateLinesDropped uint64 `json:"fate_lines_dropped"`
	Advice           Advice `json:"advice"`
}

// BooksReport is one line of the promise: opened == open + Σ fates.
type BooksReport struct {
	Opened uint64                       `json:"opened"`
	Open   uint64                       `json:"open"`
	Fates  map[string]map[string]uint64 `json:"fates"` // by fate, by party
}

// SurvivorsReport tells what was open when the drain began. Probes and scrapes are left out.
type SurvivorsReport struct {
	Connections SurvivorFates `json:"connections"`
	Streams     SurvivorFates `json:"streams"`
	// Records are the streams, oldest first.
	Records []Record `json:"records"`
	// Omitted is how many Records leaves out.
	Omitted uint64 `json:"omitted"`
}

// SurvivorFates counts survivors by what became of them.
type SurvivorFates struct {
	Total uint64            `json:"total"`
	Open  uint64            `json:"open"` // still
	Fates map[string]uint64 `json:"fates"`
}

// LateReport counts late arrivals by what they got.
type LateReport struct {
	Connections LateAnswers `json:"connections"`
	Streams     LateAnswers `json:"streams"`
}

// LateAnswers are the late arrivals of one kind of record. Open ones were not answered yet.
type LateAnswers struct {
	Served   uint64   `json:"served"`
	Rejected uint64   `json:"rejected"`
	Refused  uint64   `json:"refused"`
	Open     uint64   `json:"open"`
	Last     *Seconds `json:"last_s"` // after the drain began; null: none came
}

// FarewellsReport counts our farewells of one kind, at their connections' ends.
type FarewellsReport struct {
	Obeyed  uint64 `json:"obeyed"`
	Ignored uint64 `json:"ignored"`
}

// Report tells how the drain went so far. Without a drain only the books have a meaning.
func (r *Registry) Report() Report {
	c := r.Counts()
	r.mu.Lock()
	facts := r.drain
	r.mu.Unlock()
	rep := Report{
		Phase: c.Phase, Trigger: facts.trigger, StartedAt: Time(facts.startedAt), Deadline: Time(facts.deadline), At: Time(c.At),
		Connections: c.report(WhatConnection), Streams: c.report(WhatStream),
		Drained:         DrainFates{Connections: map[string]uint64{}, Streams: map[string]uint64{}},
		Survivors:       SurvivorsReport{Records: []Record{}},
		Farewells:       map[string]FarewellsReport{},
		OthersFarewells: map[string]uint64{},
	}
	if r.cfg.LinesDropped != nil {
		rep.FateLinesDropped = r.cfg.LinesDropped()
	}
	if err := r.Check(); err != nil {
		rep.Problem = err.Error()
	}
	for _, f := range AllFarewells() {
		if n := c.Farewells[f]; n[0]+n[1] > 0 {
			rep.Farewells[f.String()] = FarewellsReport{Obeyed: n[1], Ignored: n[0]}
		}
		if n := c.OthersFarewells[f]; n > 0 {
			rep.OthersFarewells[f.String()] = n
		}
	}
	sum := drainSum{drainBooks: drainBooks{lastLate: [numWhats]int64{-1, -1}}}
	if facts.active {
		rep.Took = since(c.At, facts.startedAt)
		sum = r.sumDrain()
	}
	rep.Drained.Connections, rep.Drained.Streams = fateMap(&sum.fates[WhatConnection]), fateMap(&sum.fates[WhatStream])
	rep.Late = LateReport{Connections: sum.lateAnswers(WhatConnection), Streams: sum.lateAnswers(WhatStream)}
	lives := rep.Survivors.fill(&sum, r.openSurvivors(&sum), c.At)
	rep.Advice = advise(lives, sum.lastLate, c.At-facts.startedAt)
	return rep
}

func (b *Books) report(w What) BooksReport {
	out := BooksReport{Fates: map[string]map[string]uint64{}}
	out.Opened, out.Open, _ = b.Sum(w)
	for d := range numDirections {
		for k := range numKinds {
			for f := range numFates {
				for p := range numParties {
					n := b.Fates[w][d][k][f][p]
					if n == 0 {
						continue
					}
					if out.Fates[f.String()] == nil {
						out.Fates[f.String()] = map[string]uint64{}
					}
					out.Fates[f.String()][p.String()] += n
				}
			}
		}
	}
	return out
}

func (d *drainSum) lateAnswers(w What) LateAnswers {
	n := d.late[w]
	return LateAnswers{
		Served: n[AnswerServed], Rejected: n[AnswerRejected], Refused: n[AnswerRefused],
		Open: d.lateOpen[w], Last: offsetOf(d.lastLate[w]),
	}
}

// openSurvivors are the survivors that are still open: copies of the streams, as far as a report has room for them, and
// how many there are of both.
func (r *Registry) openSurvivors(sum *drainSum) (out openSurvivors) {
	ended := map[recordID]bool{} // what ended since sum was taken is in out only
	for i := range sum.survivors {
		ended[sum.survivors[i].id()] = true
	}
	now := r.Now()
	for _, s := range r.shards {
		walk(&s.mu, &s.conns, func(c *Conn) bool {
			if s.survivor(c.epoch) && c.class == ClassNormal {
				out.n[WhatConnection]++
			}
			return true
		}, nil)
		walk(&s.mu, &s.streams, func(st *Stream) bool {
			if !s.survivor(st.epoch) || st.class != ClassNormal || ended[recordID{st.connID, st.n}] {
				return true
			}
			out.n[WhatStream]++
			if len(out.streams) < maxReportRecords {
				out.streams = append(out.streams, snap{})
				st.copyTo(&out.streams[len(out.streams)-1], now)
			}
			return true
		}, nil)
	}
	return out
}

type openSurvivors struct {
	n       [numWhats]uint64
	streams []snap
}

// fill adds up ended and open survivors and returns their lifetimes.
func (v *SurvivorsReport) fill(sum *drainSum, open openSurvivors, now int64) []lifetime {
	count := func(w What) SurvivorFates {
		out := SurvivorFates{Open: open.n[w], Total: open.n[w], Fates: fateMap(&sum.survivorFates[w])}
		for _, n := range sum.survivorFates[w] {
			out.Total += n
		}
		return out
	}
	v.Connections, v.Streams = count(WhatConnection), count(WhatStream)

	snaps := slices.Concat(sum.survivors, open.streams)
	lives := make([]lifetime, 0, len(snaps))
	for i := range snaps {
		end := snaps[i].ended
		if end == 0 {
			end = now
		}
		lives = append(lives, lifetime{ns: max(end-snaps[i].opened, 0), cutOff: !ownEnd(snaps[i].fate)})
	}
	slices.SortFunc(snaps, func(a, b snap) int { return SortOldest.keyOf(&a).compare(SortOldest.keyOf(&b)) })
	kept := snaps[:min(len(snaps), maxReportRecords)]
	v.Records = make([]Record, len(kept))
	for i := range kept {
		v.Records[i] = kept[i].record(now)
	}
	v.Omitted = v.Streams.Total - min(v.Streams.Total, uint64(len(kept)))
	return lives
}
