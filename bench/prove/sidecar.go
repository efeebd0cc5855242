package prove

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/lastcall-proxy/lastcall/bench/proof"
	"github.com/lastcall-proxy/lastcall/bench/sidecar"
	"github.com/lastcall-proxy/lastcall/tracker/trackerpb"
)

// fact is one record of a sidecar's, as far as it explains anything.
type fact struct {
	id, client, kind, path string
	fate, by, how, reason  string
	waiting                string
	opened, ended          time.Time
	age                    time.Duration
	stream, late, survivor bool
}

// maxFacts bounds what is kept of one sidecar; ordinary exchanges are forgotten first.
const maxFacts = 200_000

// sidecar is one that is watched from before the trigger to its end.
type watched struct {
	addr   string
	client *sidecar.Client // nil: only its report file is known

	mu      sync.Mutex
	facts   []fact
	dropped uint64 // events that were missed
	phases  []phaseAt
	fates   map[string]uint64
	late    []time.Time
	problem string
	advice  []string
	gone    time.Time // when it broke off; zero: it has not, before we left
	left    bool      // we have
}

type phaseAt struct {
	name string
	at   time.Time
}

// watchSidecar subscribes to both kinds of record. It fails when nobody is there.
func watchSidecar(ctx context.Context, addr, tokenFile string) (*watched, error) {
	c, err := sidecar.Dial(context.WithoutCancel(ctx), addr, tokenFile) // an interrupt is no reason not to hear the last fates
	if err != nil {
		return nil, err
	}
	s := &watched{addr: addr, client: c, fates: map[string]uint64{}}
	if err := c.Watch(ctx, s.take, s.ended); err != nil {
		c.Close()
		return nil, err
	}
	return s, nil
}

func (s *watched) ended(error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.left && s.gone.IsZero() {
		s.gone = time.Now()
	}
}

// closed is when its listeners closed, as far as that is known: with the drain's end, or with the process.
func (s *watched) closed() time.Time {
	for _, p := range s.phases {
		if p.name == "done" {
			return p.at
		}
	}
	return s.gone
}

func (s *watched) take(e *trackerpb.WatchResponse, what trackerpb.What) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropped += e.GetDropped()
	r := e.GetRecord()
	switch e.GetType() {
	case trackerpb.WatchResponse_TYPE_PHASE:
		if what == trackerpb.What_WHAT_STREAM { // both subscriptions tell it
			s.phases = append(s.phases, phaseAt{sidecar.Word(e.GetPhase(), "PHASE_"), e.GetAt().AsTime()})
		}
	case trackerpb.WatchResponse_TYPE_ENDED:
		f := fact{
			id: r.GetId(), client: r.GetClient(), kind: sidecar.Word(r.GetKind(), "KIND_"), path: r.GetPath(), fate: sidecar.Word(r.GetFate(), "FATE_"), by: sidecar.Word(r.GetBy(), "PARTY_"), how: sidecar.Word(r.GetHow(), "HOW_"),
			reason: r.GetReason(), waiting: sidecar.Word(r.GetWaitingOn(), "WAITING_ON_"), opened: r.GetOpenedAt().AsTime(), ended: r.GetEndedAt().AsTime(), age: r.GetAge().AsDuration(),
			stream: what == trackerpb.What_WHAT_STREAM, late: r.GetLate(), survivor: r.GetSurvivor(),
		}
		if f.stream || r.GetStreamsTotal() == 0 && f.fate != "completed" && f.fate != "drained" { // nothing else tells of such a connection
			s.fates[f.fate+" by "+f.by]++
			if f.late {
				s.late = append(s.late, f.opened)
			}
		}
		if f.fate == "completed" && f.how == "protocol" && !f.survivor && !f.late && len(s.facts) > maxFacts/2 || len(s.facts) >= maxFacts {
			return
		}
		s.facts = append(s.facts, f)
	default:
	}
}

// listTime bounds the question what is open.
const listTime = 2 * time.Second

// listOpen asks for what never ended: a request that an app has not answered is still there.
func (s *watched) listOpen(ctx context.Context) {
	if s.client == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), listTime)
	defer cancel()
	for cursor := ""; ; {
		page, err := s.client.API.List(s.client.Auth(ctx), &trackerpb.ListRequest{Selection: &trackerpb.Selection{What: trackerpb.What_WHAT_STREAM, State: trackerpb.State_STATE_OPEN}, Limit: 1000, Cursor: cursor})
		if err != nil {
			return // it is gone, as it should be
		}
		s.mu.Lock()
		for _, r := range page.GetRecords() {
			if len(s.facts) < maxFacts {
				s.facts = append(s.facts, fact{id: r.GetId(), client: r.GetClient(), kind: sidecar.Word(r.GetKind(), "KIND_"), path: r.GetPath(), fate: stillOpen, by: "unknown", waiting: sidecar.Word(r.GetWaitingOn(), "WAITING_ON_"), opened: r.GetOpenedAt().AsTime(), ended: time.Now(), stream: true})
			}
		}
		s.mu.Unlock()
		if cursor = page.GetNextCursor(); cursor == "" {
			return
		}
	}
}

// stillOpen stands for the fate of what has none.
const stillOpen = "open"

// stop ends the watch and waits for its readers.
func (s *watched) stop() {
	if s.client == nil {
		return
	}
	s.mu.Lock()
	s.left = true
	s.mu.Unlock()
	s.client.Close()
}

// reportFile is what is read of a sidecar's report.
type reportFile struct {
	At        time.Time `json:"reported_at"`
	Survivors struct {
		Records []struct {
			ID, Client, Kind, Path, Fate, By, How, Reason string
			Waiting                                       string    `json:"waiting_on"`
			Opened                                        time.Time `json:"opened_at"`
			Ended                                         string    `json:"ended_at"`
			Age                                           float64   `json:"age_s"`
		} `json:"records"`
	} `json:"survivors"`
	Advice struct {
		Notes []string `json:"notes"`
	} `json:"advice"`
}

// readReport adds what a report file tells that no watch has: ends after the API was gone. One from before the trigger is of
// another drain, maybe of another process whose ids were the same.
func (s *watched) readReport(path string, trigger time.Time) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("--report-file: %w", err)
	}
	var rep reportFile
	if err := json.Unmarshal(b, &rep); err != nil {
		return fmt.Errorf("--report-file %s: %w", path, err)
	}
	if rep.At.Before(trigger.Add(-slack)) {
		return fmt.Errorf("--report-file %s: of %s, before the trigger: not read", path, rep.At.Format(time.RFC3339))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known := map[string]bool{}
	for i := range s.facts {
		known[s.facts[i].id] = true
	}
	for _, r := range rep.Survivors.Records {
		ended, err := time.Parse(time.RFC3339Nano, r.Ended)
		if known[r.ID] || err != nil {
			continue
		}
		s.facts = append(s.facts, fact{id: r.ID, client: r.Client, kind: r.Kind, path: r.Path, fate: r.Fate, by: r.By, how: r.How, reason: r.Reason, waiting: r.Waiting, opened: r.Opened, ended: ended, age: time.Duration(r.Age * 1e9), stream: true, survivor: true})
		s.fates[r.Fate+" by "+r.By]++
	}
	s.advice = append(s.advice, rep.Advice.Notes...)
	return nil
}

// told is the sidecar's part of the document.
func (s *watched) told(zero time.Time) proof.Sidecar {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := proof.Sidecar{Addr: s.addr, Reachable: true, Problem: s.problem, Records: len(s.facts), Fates: map[string]uint64{}, Late: []float64{}, Survivors: []proof.Survivor{}, Advice: append([]string{}, s.advice...)}
	if s.dropped > 0 {
		out.Problem = strings.TrimSpace(fmt.Sprintf("%s %d events were missed", out.Problem, s.dropped))
	}
	for k, n := range s.fates {
		out.Fates[k] = n
	}
	for _, at := range s.late {
		out.Late = append(out.Late, seconds(at.Sub(zero)))
	}
	for i := range s.facts {
		if f := &s.facts[i]; f.stream && f.survivor && len(out.Survivors) < 1000 {
			out.Survivors = append(out.Survivors, proof.Survivor{ID: f.id, Kind: f.kind, Path: f.path, Age: seconds(f.age), Fate: f.fate, By: f.by, End: seconds(f.ended.Sub(zero))})
		}
	}
	return out
}
