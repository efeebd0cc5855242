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
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

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
	stream, normal          bool
}

// maxRecords bounds what is kept of one sidecar.
const maxRecords = 200_000

// sidecar is one that is asked and watched.
type sidecar struct {
	addr, token string
	api         trackerpb.TrackerClient
	cc          *grpc.ClientConn
	http        http.Client
	cancel      context.CancelFunc
	wg          sync.WaitGroup

	mu     sync.Mutex
	ended  []record
	missed uint64
	lost   error // the watch broke
}

func dial(ctx context.Context, addr, tokenFile string) (*sidecar, error) {
	s := &sidecar{addr: addr, http: http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{Proxy: nil}}}
	if tokenFile != "" {
		b, err := os.ReadFile(tokenFile)
		if err != nil {
			return nil, fmt.Errorf("--sidecar-token-file: %w", err)
		}
		s.token = strings.TrimSpace(string(b))
	}
	cc, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		return nil, fmt.Errorf("sidecar %s: %w", addr, err)
	}
	ctx, s.cancel = context.WithCancel(ctx)
	s.cc, s.api = cc, trackerpb.NewTrackerClient(cc)
	ctx = s.auth(ctx)
	for _, what := range []trackerpb.What{trackerpb.What_WHAT_CONNECTION, trackerpb.What_WHAT_STREAM} {
		w, err := s.api.Watch(ctx, &trackerpb.WatchRequest{Selection: &trackerpb.Selection{What: what}, Limit: 1})
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
			return nil, fmt.Errorf("sidecar %s: %s", addr, status.Convert(err).Message())
		}
		s.wg.Go(func() { s.follow(w, what == trackerpb.What_WHAT_STREAM) })
	}
	return s, nil
}

func (s *sidecar) auth(ctx context.Context) context.Context {
	if s.token == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+s.token)
}

func (s *sidecar) close() {
	s.cancel()
	_ = s.cc.Close()
	s.http.CloseIdleConnections()
	s.wg.Wait()
}

func (s *sidecar) follow(w grpc.ServerStreamingClient[trackerpb.WatchResponse], stream bool) {
	for {
		e, err := w.Recv()
		s.mu.Lock()
		switch {
		case err != nil:
			s.lost = errors.New(status.Convert(err).Message())
		case e.GetType() == trackerpb.WatchResponse_TYPE_ENDED && len(s.ended) < maxRecords:
			s.ended = append(s.ended, s.record(e.GetRecord(), stream))
		case e.GetType() == trackerpb.WatchResponse_TYPE_ENDED:
			s.missed++
		}
		s.missed += e.GetDropped()
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func word(v fmt.Stringer, prefix string) string {
	return strings.ToLower(strings.TrimPrefix(v.String(), prefix))
}

func (s *sidecar) record(r *trackerpb.Record, stream bool) record {
	out := record{
		sidecar: s.addr, id: r.GetId(), conn: r.GetConn(), kind: word(r.GetKind(), "KIND_"), path: r.GetPath(), identity: r.GetPeer().GetIdentity(),
		fate: word(r.GetFate(), "FATE_"), by: word(r.GetBy(), "PARTY_"), reason: r.GetReason(), status: r.GetStatus(),
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
func (s *sidecar) open(ctx context.Context, stream bool) ([]record, error) {
	what := trackerpb.What_WHAT_CONNECTION
	if stream {
		what = trackerpb.What_WHAT_STREAM
	}
	var all []record
	for cursor := ""; ; {
		page, err := s.api.List(s.auth(ctx), &trackerpb.ListRequest{Selection: &trackerpb.Selection{What: what, State: trackerpb.State_STATE_OPEN}, Limit: 1000, Cursor: cursor})
		if err != nil {
			return nil, fmt.Errorf("sidecar %s: %s", s.addr, status.Convert(err).Message())
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
	Status, Reason              string
	StartedAt                   time.Time `json:"started_at"`
	Picked, Taken, Missed, Held int
	Refusing                    bool
}

// call makes one request to the HTTP API.
func (s *sidecar) call(ctx context.Context, method, path string, body, into any) error {
	var b []byte
	if body != nil {
		var err error
		if b, err = json.Marshal(body); err != nil {
			return err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+s.addr+path, bytes.NewReader(b))
	if err != nil {
		return fmt.Errorf("sidecar %s: %w", s.addr, err)
	}
	if s.token != "" {
		req.Header.Set("Authorization", "Bearer "+s.token)
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return fmt.Errorf("sidecar %s: %w", s.addr, err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return fmt.Errorf("sidecar %s: %w", s.addr, err)
	}
	if resp.StatusCode >= 300 {
		var e struct {
			Error struct{ Message string } `json:"error"`
		}
		if json.Unmarshal(answer, &e) != nil || e.Error.Message == "" {
			e.Error.Message = resp.Status
		}
		return fmt.Errorf("sidecar %s refuses: %s", s.addr, e.Error.Message)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(answer, into)
}
