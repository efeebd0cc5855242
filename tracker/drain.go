package tracker

// maxSurvivorEnds bounds the ended survivors that are kept for the report, over all shards.
const maxSurvivorEnds = 10_000

// viewSurvivors is how many survivors Drain names.
const viewSurvivors = 20

// drainFacts are what the registry itself keeps of a drain.
type drainFacts struct {
	active    bool
	trigger   string
	startedAt int64
	deadline  int64
}

// drainBooks are what a shard counts for the running drain, from its beginning.
type drainBooks struct {
	startedAt     int64
	fates         [numWhats][numFates]uint64 // of everything that ended
	survivorFates [numWhats][numFates]uint64
	late          [numWhats][numAnswers]uint64
	lastLate      [numWhats]int64 // ns after startedAt; -1: none came
	survivors     []snap          // streams, ended
	omitted       uint64          // ended survivors that survivors had no room for
}

func (d *drainBooks) ended(w What, f Fate, survivor bool) {
	d.fates[w][f]++
	if survivor {
		d.survivorFates[w][f]++
	}
}

// keepSurvivor keeps an ended stream for the report. The caller holds mu.
func (s *Shard) keepSurvivor(sn *snap) {
	if s.reg.survivorRoom.Add(-1) < 0 {
		s.drain.omitted++
		return
	}
	s.drain.survivors = append(s.drain.survivors, sn.clone())
}

// BeginDrain begins a drain: from here on what is open is a survivor, what begins is late. at and deadline are in ns since
// the epoch. If a drain is running it changes nothing but the deadline.
func (r *Registry) BeginDrain(trigger string, at, deadline int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drain.deadline = deadline
	if r.drain.active {
		return
	}
	if at == 0 {
		at = r.Now()
	}
	r.drain.active, r.drain.trigger, r.drain.startedAt = true, trigger, at
	r.survivorRoom.Store(maxSurvivorEnds)
	empty := false
	for _, s := range r.shards {
		s.mu.Lock()
		s.epoch++
		s.drain = drainBooks{startedAt: at, lastLate: [numWhats]int64{-1, -1}}
		s.survivorsOpen = s.holdStreams
		empty = empty || s.holdConns == 0
		s.mu.Unlock()
	}
	r.setPhase(Lameduck)
	if empty {
		r.signalChanged()
	}
}

// SetPhase moves on to a later phase of the drain. It does nothing without a drain, and never goes back.
func (r *Registry) SetPhase(p Phase) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.drain.active && p > r.Phase() && p < numPhases {
		r.setPhase(p)
	}
}

// setPhase is called with mu held.
func (r *Registry) setPhase(p Phase) {
	r.phase.Store(uint32(p))
	r.events.send(Event{Type: EventPhase, At: Time(r.Now()), Phase: p})
}

// CancelDrain ends a drain without an end: nothing is a survivor or late any more, the phase is Serving. What the counters
// have counted stays.
func (r *Registry) CancelDrain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.drain.active {
		return
	}
	r.drain = drainFacts{}
	for _, s := range r.shards {
		s.mu.Lock()
		s.epoch++
		s.drain = drainBooks{lastLate: [numWhats]int64{-1, -1}}
		s.survivorsOpen = [numKinds]int{}
		s.mu.Unlock()
	}
	r.setPhase(Serving)
}

// Remaining is what holds a drain: connections and streams of class normal. ByKind counts the streams; kinds without any
// are left out.
type Remaining struct {
	Connections int            `json:"connections"`
	Streams     int            `json:"streams"`
	ByKind      map[string]int `json:"by_kind"`
}

// Remaining is what is open now and holds a drain.
func (r *Registry) Remaining() Remaining {
	out := Remaining{ByKind: map[string]int{}}
	for _, s := range r.shards {
		s.mu.Lock()
		conns, streams := s.holdConns, s.holdStreams
		s.mu.Unlock()
		out.Connections += conns
		for k, n := range streams {
			out.Streams += n
			if n > 0 {
				out.ByKind[Kind(k).String()] += n
			}
		}
	}
	return out
}

// Changed gives a token, during a drain, whenever a shard has no connection left that holds it. One token may stand for
// several such moments: look at Remaining.
func (r *Registry) Changed() <-chan struct{} { return r.changed }

// DrainView is the drain as it stands, in the form of GET /v1/drain.
type DrainView struct {
	Phase     Phase      `json:"phase"`
	Trigger   string     `json:"trigger"`
	StartedAt Time       `json:"started_at"`
	Deadline  Time       `json:"deadline"`
	Remaining Remaining  `json:"remaining"`
	Late      LateView   `json:"late"`
	Survivors []Record   `json:"survivors"` // streams, open, the oldest 20
	Fates     DrainFates `json:"fates"`
}

// LateView counts the late arrivals, those that are still open among them.
type LateView struct {
	Connections    uint64   `json:"connections"`
	Streams        uint64   `json:"streams"`
	LastConnection *Seconds `json:"last_connection_s"` // after the drain began; null: none came
	LastStream     *Seconds `json:"last_stream_s"`
}

// DrainFates are the fates of what ended since the drain began, by name; fates that nothing had are left out.
type DrainFates struct {
	Connections map[string]uint64 `json:"connections"`
	Streams     map[string]uint64 `json:"streams"`
}

// Drain is the drain as it stands. Before a drain its phase is Serving and only Remaining has a meaning.
func (r *Registry) Drain() DrainView {
	r.mu.Lock()
	facts, phase := r.drain, r.Phase()
	r.mu.Unlock()
	v := DrainView{
		Phase: phase, Trigger: facts.trigger, StartedAt: Time(facts.startedAt), Deadline: Time(facts.deadline),
		Remaining: r.Remaining(),
		Survivors: []Record{},
		Fates:     DrainFates{Connections: map[string]uint64{}, Streams: map[string]uint64{}},
	}
	if !facts.active {
		return v
	}
	sum := r.sumDrain()
	v.Late = sum.lateView()
	v.Fates = DrainFates{Connections: fateMap(&sum.fates[WhatConnection]), Streams: fateMap(&sum.fates[WhatStream])}
	// A query of ours cannot be refused.
	v.Survivors, _, _ = r.Query(Query{What: WhatStream, State: StateSurvivors, Limit: viewSurvivors})
	return v
}

// drainSum is the shards' drain books, added up, and the late arrivals that are still open and not answered.
type drainSum struct {
	drainBooks
	lateOpen [numWhats]uint64
}

func (r *Registry) sumDrain() drainSum {
	sum := drainSum{drainBooks: drainBooks{lastLate: [numWhats]int64{-1, -1}}}
	for _, s := range r.shards {
		s.mu.Lock()
		d := s.drain
		s.mu.Unlock() // the kept survivors are only appended to: what d sees of them stays
		for w := range numWhats {
			for f := range numFates {
				sum.fates[w][f] += d.fates[w][f]
				sum.survivorFates[w][f] += d.survivorFates[w][f]
			}
			for a := range numAnswers {
				sum.late[w][a] += d.late[w][a]
			}
			sum.lastLate[w] = max(sum.lastLate[w], d.lastLate[w])
		}
		sum.survivors = append(sum.survivors, d.survivors...)
		sum.omitted += d.omitted
		walk(&s.mu, &s.conns, func(c *Conn) bool {
			sum.open(WhatConnection, s.late(c.epoch) && c.answer == AnswerNone && c.class == ClassNormal, c.opened-s.drain.startedAt)
			return true
		}, nil)
		walk(&s.mu, &s.streams, func(st *Stream) bool {
			sum.open(WhatStream, s.late(st.epoch) && st.answer == AnswerNone && st.class == ClassNormal, st.opened-s.drain.startedAt)
			return true
		}, nil)
	}
	return sum
}

func (d *drainSum) open(w What, late bool, offset int64) {
	if late {
		d.lateOpen[w]++
		d.lastLate[w] = max(d.lastLate[w], offset, 0)
	}
}

func (d *drainSum) lateView() LateView {
	var n [numWhats]uint64
	for w := range numWhats {
		n[w] = d.lateOpen[w]
		for _, v := range d.late[w] {
			n[w] += v
		}
	}
	return LateView{
		Connections: n[WhatConnection], Streams: n[WhatStream],
		LastConnection: offsetOf(d.lastLate[WhatConnection]), LastStream: offsetOf(d.lastLate[WhatStream]),
	}
}

// offsetOf is ns in seconds, nil if negative.
func offsetOf(ns int64) *Seconds {
	if ns < 0 {
		return nil
	}
	return new(secondsOf(ns))
}

func fateMap(n *[numFates]uint64) map[string]uint64 {
	out := map[string]uint64{}
	for f, v := range n {
		if v > 0 {
			out[Fate(f).String()] = v
		}
	}
	return out
}
