package rehearse

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/lastcall-proxy/lastcall/bench/sidecar"
	"github.com/lastcall-proxy/lastcall/tracker/trackerpb"
)

// record is what is used of a sidecar's record.
type record struct {
	sidecar, id, conn, kind string
	ip, path, identity      string
	fate, by, reason        string
	status                  string
	opened, ended           time.Time
	told                    time.Time // our farewell, if there was one
	dialled                 time.Time // of a stream: when its connection was opened; zero: not known
	stream, normal          bool
}

// maxRecords bounds what is kept of one sidecar.
const maxRecords = 200_000

// watched is a sidecar that is asked and watched.
type watched struct {
	*sidecar.Client
	http http.Client

	mu     sync.Mutex
	ended  []record
	missed uint64
	lost   error // the watch broke, or a drain began
}

func watch(ctx context.Context, flag, addr, tokenFile string) (*watched, error) {
	c, err := sidecar.Dial(context.WithoutCancel(ctx), addr, tokenFile) // watches outlive an interrupt: their last words are wanted
	if err != nil {
		return nil, err
	}
	c.Flag = flag
	s := &watched{Client: c, http: http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{Proxy: nil}}}
	if err := c.Watch(ctx, s.take, s.gone); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *watched) close() {
	s.Close()
	s.http.CloseIdleConnections()
}

func (s *watched) gone(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost == nil {
		s.lost = fmt.Errorf("gone: %w", err)
	}
}

var errDrain = errors.New("draining: what its clients meet now is no rehearsal")

func (s *watched) take(e *trackerpb.WatchResponse, what trackerpb.What) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.missed += e.GetDropped()
	switch {
	case e.GetType() == trackerpb.WatchResponse_TYPE_PHASE && e.GetPhase() != trackerpb.Phase_PHASE_SERVING:
		if s.lost == nil {
			s.lost = errDrain
		}
	case e.GetType() != trackerpb.WatchResponse_TYPE_ENDED:
	case len(s.ended) < maxRecords:
		s.ended = append(s.ended, s.record(e.GetRecord(), what == trackerpb.What_WHAT_STREAM))
	default:
		s.missed++
	}
}

func (s *watched) record(r *trackerpb.Record, stream bool) record {
	out := record{
		sidecar: s.Addr, id: r.GetId(), conn: r.GetConn(), kind: sidecar.Word(r.GetKind(), "KIND_"), path: r.GetPath(), identity: r.GetPeer().GetIdentity(),
		fate: sidecar.Word(r.GetFate(), "FATE_"), by: sidecar.Word(r.GetBy(), "PARTY_"), reason: r.GetReason(), status: r.GetStatus(),
		opened: r.GetOpenedAt().AsTime(), stream: stream, normal: r.GetPeer().GetClass() == trackerpb.Class_CLASS_NORMAL,
	}
	if out.fate == "unspecified" {
		out.fate = ""
	}
	if at, err := netip.ParseAddrPort(r.GetClient()); err == nil {
		out.ip = at.Addr().String()
	}
	if t := r.GetEndedAt(); t != nil {
		out.ended = t.AsTime()
	}
	if t := r.GetFarewell().GetSentAt(); t != nil {
		out.told = t.AsTime()
	}
	if !stream {
		out.conn = out.id
	}
	return out
}

// open lists what is open now, streams or connections.
func (s *watched) open(ctx context.Context, stream bool) ([]record, error) {
	what := trackerpb.What_WHAT_CONNECTION
	if stream {
		what = trackerpb.What_WHAT_STREAM
	}
	var all []record
	for cursor := ""; ; {
		page, err := s.API.List(s.Auth(ctx), &trackerpb.ListRequest{Selection: &trackerpb.Selection{What: what, State: trackerpb.State_STATE_OPEN}, Limit: 1000, Cursor: cursor})
		if err != nil {
			return nil, s.Error(err)
		}
		for _, r := range page.GetRecords() {
			all = append(all, s.record(r, stream))
		}
		if cursor = page.GetNextCursor(); cursor == "" || len(all) > maxRecords {
			return all, nil
		}
	}
}

// state is the sidecar's own view of the rehearsal.
type state struct {
	ID                          int
	Status, Reason              string
	StartedAt                   time.Time `json:"started_at"`
	Picked, Taken, Missed, Held int
	Refusing                    bool
}

// call makes one request to the HTTP API.
func (s *watched) call(ctx context.Context, method, path string, body, into any) error {
	var b []byte
	if body != nil {
		var err error
		if b, err = json.Marshal(body); err != nil {
			return err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+s.Addr+path, bytes.NewReader(b))
	if err != nil {
		return fmt.Errorf("sidecar %s: %w", s.Addr, err)
	}
	if s.Token != "" {
		req.Header.Set("Authorization", "Bearer "+s.Token)
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return fmt.Errorf("sidecar %s: %w", s.Addr, err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return fmt.Errorf("sidecar %s: %w", s.Addr, err)
	}
	if resp.StatusCode >= 300 {
		var e struct {
			Error struct{ Message string } `json:"error"`
		}
		if json.Unmarshal(answer, &e) != nil || e.Error.Message == "" {
			e.Error.Message = resp.Status
		}
		return fmt.Errorf("sidecar %s refuses: %s", s.Addr, e.Error.Message)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(answer, into)
}
