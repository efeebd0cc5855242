package admin

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lastcall-proxy/lastcall/tracker"
	pb "github.com/lastcall-proxy/lastcall/tracker/trackerpb"
)

// newGRPC makes the handler of everything that comes as application/grpc: the Tracker, health and reflection. The server
// is made at the first call: a sidecar that nobody calls keeps its memory.
func newGRPC(cfg Config) http.Handler {
	server := sync.OnceValue(func() *grpc.Server {
		s := grpc.NewServer()
		pb.RegisterTrackerServer(s, &trackerService{cfg: cfg})
		healthpb.RegisterHealthServer(s, &healthService{ready: cfg.Ready})
		reflection.RegisterV1(s)
		return s
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // a watch outlives the time that a request may take to come
		server().ServeHTTP(w, r)
	})
}

func isGRPC(r *http.Request) bool {
	return r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc")
}

func badField(name, why string) error {
	return status.Errorf(codes.InvalidArgument, "%s: %s", name, why)
}

// statusOf is the gRPC form of a Controller's error.
func statusOf(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrNotFound):
		return status.Error(codes.NotFound, err.Error())
	case errors.Is(err, ErrConflict):
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	return status.Error(codes.Internal, err.Error())
}

type trackerService struct {
	pb.UnimplementedTrackerServer
	cfg Config
}

// selection reads the query's part that List and Watch share.
func selection(s *pb.Selection) (tracker.Query, error) {
	q := tracker.Query{What: tracker.WhatStream, Fate: tracker.Fate(s.GetFate())}
	if s.GetWhat() == pb.What_WHAT_CONNECTION {
		q.What = tracker.WhatConnection
	}
	if n := s.GetState(); n != 0 {
		q.State = tracker.State(n - 1)
	}
	q.Kind, q.Direction, q.WaitingOn = chosen[tracker.Kind](s.GetKind()), chosen[tracker.Direction](s.GetDirection()), chosen[tracker.WaitingOn](s.GetWaitingOn())
	for name, in := range map[string]struct{ v, n int }{
		"what": {int(s.GetWhat()), len(pb.What_name)}, "state": {int(s.GetState()), len(pb.State_name)}, "kind": {int(s.GetKind()), len(pb.Kind_name)},
		"direction": {int(s.GetDirection()), len(pb.Direction_name)}, "waiting_on": {int(s.GetWaitingOn()), len(pb.WaitingOn_name)}, "fate": {int(s.GetFate()), len(pb.Fate_name)},
	} {
		if in.v < 0 || in.v >= in.n {
			return q, badField("selection."+name, "unknown value")
		}
	}
	var err error
	if q.Older, err = nonNegative("selection.older", s.GetOlder()); err != nil {
		return q, err
	}
	q.Idle, err = nonNegative("selection.idle", s.GetIdle())
	return q, err
}

// chosen is nil for unspecified, which selects everything.
func chosen[To ~uint8, From ~int32](v From) *To {
	if v == 0 {
		return nil
	}
	return new(To(v - 1))
}

func (t *trackerService) List(_ context.Context, in *pb.ListRequest) (*pb.ListResponse, error) {
	q, err := selection(in.GetSelection())
	if err != nil {
		return nil, err
	}
	if n := in.GetSort(); n < 0 || int(n) >= len(pb.Sort_name) {
		return nil, badField("sort", "unknown value")
	} else if n > 0 {
		q.Sort = tracker.Sort(n - 1)
	}
	q.Limit, q.Cursor = int(in.GetLimit()), in.GetCursor()
	recs, next, err := t.cfg.Registry.Query(q)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	return &pb.ListResponse{Records: records(recs), NextCursor: next}, nil
}

func (t *trackerService) Get(_ context.Context, in *pb.GetRequest) (*pb.GetResponse, error) {
	id, err := connID(in.GetId())
	if err != nil {
		return nil, badField("id", "want c42 or 42")
	}
	conn, streams, ok := t.cfg.Registry.Get(id)
	if !ok {
		return nil, status.Error(codes.NotFound, "no such connection, open or remembered")
	}
	out := &pb.GetResponse{Connection: record(&conn), Streams: records(streams)}
	if conn.Fate == tracker.FateOpen {
		out.Http2 = http2View(t.cfg.Controller.Inspect(id))
	}
	return out, nil
}

// fastest is the shortest interval that a watch may ask for: a list of a thousand out of five thousand takes some ms.
const fastest = 100 * time.Millisecond

// Watch subscribes before it lists, so that nothing falls between.
func (t *trackerService) Watch(in *pb.WatchRequest, out grpc.ServerStreamingServer[pb.WatchResponse]) error {
	q, err := selection(in.GetSelection())
	if err != nil {
		return err
	}
	q.Limit = int(in.GetLimit())
	every, err := nonNegative("refresh", in.GetRefresh())
	if err != nil {
		return err
	}
	if every > 0 && every < fastest {
		return badField("refresh", "at least 100ms, or 0 for never")
	}
	want := tracker.Interest{What: []tracker.What{q.What}, Query: &q}
	for _, wanted := range in.GetTypes() {
		if wanted < pb.WatchResponse_TYPE_OPENED || wanted > pb.WatchResponse_TYPE_PHASE {
			return badField("types", "want opened, ended, farewell or phase")
		}
		want.Types = append(want.Types, tracker.EventType(wanted-pb.WatchResponse_TYPE_OPENED))
	}
	events, stop := t.cfg.Registry.Subscribe(eventBuffer, want)
	defer stop()
	if err := t.current(&q, out); err != nil {
		return err
	}
	var tick <-chan time.Time
	if every > 0 {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		tick = ticker.C
	}
	var missed uint64
	for {
		select {
		case <-out.Context().Done():
			return status.FromContextError(out.Context().Err()).Err()
		case <-tick:
			if err := t.current(&q, out); err != nil {
				return err
			}
		case e := <-events:
			missed += e.Dropped
			res := &pb.WatchResponse{Type: eventType(e.Type), At: moment(e.At), Phase: wire[pb.Phase](e.Phase), Dropped: missed}
			if e.Record != nil {
				res.Record = record(e.Record)
			}
			if err := out.Send(res); err != nil {
				return err
			}
			missed = 0
		}
	}
}

// current sends what the query selects now, and that it was all.
func (t *trackerService) current(q *tracker.Query, out grpc.ServerStreamingServer[pb.WatchResponse]) error {
	recs, _, err := t.cfg.Registry.Query(*q)
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	at, phase := timestamppb.Now(), wire[pb.Phase](t.cfg.Registry.Phase())
	for i := range recs {
		if err := out.Send(&pb.WatchResponse{Type: pb.WatchResponse_TYPE_CURRENT, At: at, Phase: phase, Record: record(&recs[i])}); err != nil {
			return err
		}
	}
	return out.Send(&pb.WatchResponse{Type: pb.WatchResponse_TYPE_SYNCED, At: at, Phase: phase})
}

func eventType(t tracker.EventType) pb.WatchResponse_Type {
	return pb.WatchResponse_TYPE_OPENED + pb.WatchResponse_Type(t)
}

func (t *trackerService) drain() *pb.Drain {
	v := t.cfg.Registry.Drain()
	return drainOf(&v)
}

func (t *trackerService) GetDrain(context.Context, *pb.GetDrainRequest) (*pb.GetDrainResponse, error) {
	return &pb.GetDrainResponse{Drain: t.drain()}, nil
}

func (t *trackerService) WatchDrain(in *pb.WatchDrainRequest, out grpc.ServerStreamingServer[pb.WatchDrainResponse]) error {
	every, err := nonNegative("interval", in.GetInterval())
	switch {
	case err != nil:
		return err
	case every == 0:
		every = time.Second
	case every < fastest:
		return badField("interval", "at least 100ms, or 0 for a second")
	}
	look := time.NewTicker(fastest) // the phase is one atomic load: cheaper than subscribing to every event there is
	defer look.Stop()
	for sent, phase := (time.Time{}), tracker.Phase(0); ; {
		if now := t.cfg.Registry.Phase(); now != phase || time.Since(sent) >= every {
			d := t.drain()
			if err := out.Send(&pb.WatchDrainResponse{Drain: d}); err != nil {
				return err
			}
			if sent, phase = time.Now(), now; d.GetPhase() == pb.Phase_PHASE_DONE {
				return nil
			}
		}
		select {
		case <-out.Context().Done():
			return status.FromContextError(out.Context().Err()).Err()
		case <-look.C:
		}
	}
}

func (t *trackerService) StartDrain(context.Context, *pb.StartDrainRequest) (*pb.StartDrainResponse, error) {
	if err := t.cfg.Controller.StartDrain("api"); err != nil {
		return nil, statusOf(err)
	}
	return &pb.StartDrainResponse{Drain: t.drain()}, nil
}

func (t *trackerService) CancelDrain(context.Context, *pb.CancelDrainRequest) (*pb.CancelDrainResponse, error) {
	if err := t.cfg.Controller.CancelDrain(); err != nil {
		return nil, statusOf(err)
	}
	return &pb.CancelDrainResponse{Drain: t.drain()}, nil
}

func (t *trackerService) Close(_ context.Context, in *pb.CloseRequest) (*pb.CloseResponse, error) {
	id, err := connID(in.GetId())
	if err != nil {
		return nil, badField("id", "want c42 or 42")
	}
	if m := in.GetMode(); m < 0 || int(m) >= len(pb.CloseRequest_Mode_name) {
		return nil, badField("mode", "unknown value")
	}
	if err := t.cfg.Controller.CloseConn(id, in.GetMode() != pb.CloseRequest_MODE_CUT); err != nil {
		return nil, statusOf(err)
	}
	return &pb.CloseResponse{}, nil
}

// Limits of a report's records.
const (
	defaultRecords = 1000
	maxRecords     = 10_000
)

func (t *trackerService) Report(_ context.Context, in *pb.ReportRequest) (*pb.ReportResponse, error) {
	limit := int(in.GetMaxRecords())
	if limit < 0 || limit > maxRecords {
		return nil, badField("max_records", "want 1 to 10000, or 0 for 1000")
	}
	if limit == 0 {
		limit = defaultRecords
	}
	rep := t.cfg.Registry.Report()
	if n := len(rep.Survivors.Records); n > limit {
		rep.Survivors.Records = rep.Survivors.Records[:limit]
		rep.Survivors.Omitted += uint64(n - limit)
	}
	b, err := json.Marshal(rep)
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	out := &structpb.Struct{}
	if err := out.UnmarshalJSON(b); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &pb.ReportResponse{Report: out}, nil
}
