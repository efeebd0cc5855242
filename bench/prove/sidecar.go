package prove

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/lastcall-proxy/lastcall/bench/proof"
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
type sidecar struct {
	addr string

	mu      sync.Mutex
	facts   []fact
	dropped uint64 // events that were missed
	phases  []phaseAt
	fates   map[string]uint64
	late    []time.Time
	problem string
	advice  []string
	gone    time.Time
	wg      sync.WaitGroup
	close   func()
}

type phaseAt struct {
	name string
	at   time.Time
}

// watchSidecar subscribes to both kinds of record. It fails when nobody is there.
func watchSidecar(ctx context.Context, addr, tokenFile string) (*sidecar, error) {
	cc, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		return nil, fmt.Errorf("--sidecar %s: %w", addr, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &sidecar{addr: addr, fates: map[string]uint64{}, close: func() { cancel(); _ = cc.Close() }}
	if tokenFile != "" {
		b, err := os.ReadFile(tokenFile)
		if err != nil {
			s.close()
			return nil, fmt.Errorf("--sidecar-token-file: %w", err)
		}
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+strings.TrimSpace(string(b)))
	}
	api := trackerpb.NewTrackerClient(cc)
	for _, what := range []trackerpb.What{trackerpb.What_WHAT_CONNECTION, trackerpb.What_WHAT_STREAM} {
		w, err := api.Watch(ctx, &trackerpb.WatchRequest{Selection: &trackerpb.Selection{What: what}, Limit: 1})
		if err == nil {
			for { // up to the mark behind what is open: from there on every event comes
				e, rerr := w.Recv()
				if err = rerr; err != nil || e.GetType() == trackerpb.WatchResponse_TYPE_SYNCED {
					break
				}
			}
		}
		if err != nil {
			s.close()
			return nil, fmt.Errorf("--sidecar %s: %s", addr, status.Convert(err).Message())
		}
		s.wg.Go(func() { s.follow(w, what) })
	}
	return s, nil
}

func (s *sidecar) follow(w grpc.ServerStreamingClient[trackerpb.WatchResponse], what trackerpb.What) {
	for {
		e, err := w.Recv()
		if err != nil {
			s.mu.Lock()
			s.gone = time.Now()
			s.mu.Unlock()
			return
		}
		s.mu.Lock()
		s.take(e, what)
		s.mu.Unlock()
	}
}

func word(v fmt.Stringer, prefix string) string {
	return strings.ToLower(strings.TrimPrefix(v.String(), prefix))
}

func (s *sidecar) take(e *trackerpb.WatchResponse, what trackerpb.What) {
	s.dropped += e.GetDropped()
	r := e.GetRecord()
	switch e.GetType() {
	case trackerpb.WatchResponse_TYPE_PHASE:
		if what == trackerpb.What_WHAT_STREAM { // both subscriptions tell it
			s.phases = append(s.phases, phaseAt{word(e.GetPhase(), "PHASE_"), e.GetAt().AsTime()})
		}
	case trackerpb.WatchResponse_TYPE_ENDED:
		f := fact{
			id: r.GetId(), client: r.GetClient(), kind: word(r.GetKind(), "KIND_"), path: r.GetPath(), fate: word(r.GetFate(), "FATE_"), by: word(r.GetBy(), "PARTY_"), how: word(r.GetHow(), "HOW_"),
			reason: r.GetReason(), waiting: word(r.GetWaitingOn(), "WAITING_ON_"), opened: r.GetOpenedAt().AsTime(), ended: r.GetEndedAt().AsTime(), age: r.GetAge().AsDuration(),
			stream: what == trackerpb.What_WHAT_STREAM, late: r.GetLate(), survivor: r.GetSurvivor(),
		}
		if f.stream {
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

// stop ends the watch and waits for its readers.
func (s *sidecar) stop() {
	s.close()
	s.wg.Wait()
}

// reportFile is what is read of a sidecar's report.
type reportFile struct {
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

// readReport adds what a report file tells that no watch has: ends after the API was gone.
func (s *sidecar) readReport(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("--report-file: %w", err)
	}
	var rep reportFile
	if err := json.Unmarshal(b, &rep); err != nil {
		return fmt.Errorf("--report-file %s: %w", path, err)
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
func (s *sidecar) told(zero time.Time) proof.Sidecar {
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
