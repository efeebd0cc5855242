package admin_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lastcall-proxy/lastcall/tracker"
	"github.com/lastcall-proxy/lastcall/tracker/admin"
	pb "github.com/lastcall-proxy/lastcall/tracker/trackerpb"
	"github.com/lastcall-proxy/lastcall/tracker/trackertest"
)

func dial(t *testing.T, token string) (*grpc.ClientConn, *controller, *tracker.Registry) {
	t.Helper()
	reg := trackertest.New(t, tracker.Config{Shards: 1})
	ctl := &controller{drained: make(chan struct{})}
	ready := func() (bool, string) { return reg.Phase() == tracker.Serving, "draining" }
	srv := admin.Server(admin.NewAdmin(admin.Config{Registry: reg, Controller: ctl, Token: token, Ready: ready, Metrics: http.NotFoundHandler()}))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(ln) }()
	t.Cleanup(func() { _ = srv.Close(); <-done })
	cc, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	return cc, ctl, reg
}

func open(reg *tracker.Registry, dir tracker.Direction, kind tracker.Kind) *tracker.Conn {
	c := reg.Shard(0).OpenConn(tracker.ConnFacts{Direction: dir, Client: "192.0.2.1:5", App: "a", OpenedAt: reg.Now()})
	c.SetKind(kind)
	return c
}

func TestGRPCCalls(t *testing.T) {
	cc, ctl, reg := dial(t, "")
	c := open(reg, tracker.Inbound, tracker.KindTCP)
	defer c.End(tracker.End{Fate: tracker.Completed, By: tracker.ByClient, How: tracker.HowFIN})
	gone := open(reg, tracker.Inbound, tracker.KindHTTP1)
	gone.End(tracker.End{Fate: tracker.Aborted, By: tracker.ByApp, How: tracker.HowRST, Stage: tracker.StageRequest, Reason: "why"})
	api, ctx := pb.NewTrackerClient(cc), t.Context()

	list, err := api.List(ctx, &pb.ListRequest{Selection: &pb.Selection{What: pb.What_WHAT_CONNECTION, State: pb.State_STATE_CLOSED, Kind: pb.Kind_KIND_HTTP1, Fate: pb.Fate_FATE_ABORTED}})
	if err != nil || len(list.GetRecords()) != 1 {
		t.Fatalf("list: %v, %v", list, err)
	}
	if r := list.GetRecords()[0]; r.GetId() != "c2" || r.GetFate() != pb.Fate_FATE_ABORTED || r.GetBy() != pb.Party_PARTY_APP || r.GetHow() != pb.How_HOW_RST || r.GetStage() != pb.Stage_STAGE_REQUEST || r.GetReason() != "why" || r.GetEndedAt() == nil || r.GetClient() != "192.0.2.1:5" {
		t.Errorf("record: %v", r)
	}
	got, err := api.Get(ctx, &pb.GetRequest{Id: "c1"})
	if err != nil || got.GetConnection().GetId() != "c1" || got.GetConnection().GetFate() != pb.Fate_FATE_UNSPECIFIED || got.GetConnection().GetBy() != pb.Party_PARTY_UNSPECIFIED {
		t.Errorf("get: %v, %v", got, err)
	}
	if d, err := api.StartDrain(ctx, &pb.StartDrainRequest{}); err != nil || d.GetDrain().GetPhase() != pb.Phase_PHASE_SERVING {
		t.Errorf("start: %v, %v", d, err)
	}
	if _, err := api.Close(ctx, &pb.CloseRequest{Id: "1", Mode: pb.CloseRequest_MODE_CUT}); err != nil {
		t.Errorf("close: %v", err)
	}
	rep, err := api.Report(ctx, &pb.ReportRequest{})
	if err != nil || rep.GetReport().GetFields()["connections"].GetStructValue().GetFields()["opened"].GetNumberValue() != 2 {
		t.Errorf("report: %v, %v", rep, err)
	}
	if got, want := strings.Join(ctl.calls, ", "), "start api, close 1 polite=false"; got != want {
		t.Errorf("calls: got %q, want %q", got, want)
	}

	for name, tt := range map[string]struct {
		call func() error
		code codes.Code
		says string
	}{
		"kind": {func() error { _, err := api.List(ctx, &pb.ListRequest{Selection: &pb.Selection{Kind: 99}}); return err }, codes.InvalidArgument, "selection.kind"},
		"older": {func() error {
			_, err := api.List(ctx, &pb.ListRequest{Selection: &pb.Selection{Older: durationpb.New(-1)}})
			return err
		}, codes.InvalidArgument, "selection.older"},
		"sort":    {func() error { _, err := api.List(ctx, &pb.ListRequest{Sort: -1}); return err }, codes.InvalidArgument, "sort"},
		"limit":   {func() error { _, err := api.List(ctx, &pb.ListRequest{Limit: 1001}); return err }, codes.InvalidArgument, "limit"},
		"cursor":  {func() error { _, err := api.List(ctx, &pb.ListRequest{Cursor: "x"}); return err }, codes.InvalidArgument, "cursor"},
		"id":      {func() error { _, err := api.Get(ctx, &pb.GetRequest{Id: "x"}); return err }, codes.InvalidArgument, "id"},
		"get":     {func() error { _, err := api.Get(ctx, &pb.GetRequest{Id: "c9"}); return err }, codes.NotFound, "no such"},
		"close":   {func() error { _, err := api.Close(ctx, &pb.CloseRequest{Id: "c9"}); return err }, codes.NotFound, ""},
		"mode":    {func() error { _, err := api.Close(ctx, &pb.CloseRequest{Id: "c1", Mode: 7}); return err }, codes.InvalidArgument, "mode"},
		"cancel":  {func() error { _, err := api.CancelDrain(ctx, &pb.CancelDrainRequest{}); return err }, codes.FailedPrecondition, "not draining"},
		"records": {func() error { _, err := api.Report(ctx, &pb.ReportRequest{MaxRecords: 10_001}); return err }, codes.InvalidArgument, "max_records"},
		"refresh": {func() error {
			w, err := api.Watch(ctx, &pb.WatchRequest{Refresh: durationpb.New(time.Millisecond)})
			if err != nil {
				return err
			}
			_, err = w.Recv()
			return err
		}, codes.InvalidArgument, "refresh"},
	} {
		if err := tt.call(); status.Code(err) != tt.code || !strings.Contains(status.Convert(err).Message(), tt.says) {
			t.Errorf("%s: got %v, want %v with %q", name, err, tt.code, tt.says)
		}
	}
}

func TestGRPCWatch(t *testing.T) {
	cc, _, reg := dial(t, "")
	c := open(reg, tracker.Inbound, tracker.KindTCP)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	w, err := pb.NewTrackerClient(cc).Watch(ctx, &pb.WatchRequest{Selection: &pb.Selection{What: pb.What_WHAT_CONNECTION, Direction: pb.Direction_DIRECTION_INBOUND}})
	if err != nil {
		t.Fatal(err)
	}
	next := func(want pb.WatchResponse_Type, id string) {
		t.Helper()
		e, err := w.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if e.GetType() != want || e.GetRecord().GetId() != id {
			t.Errorf("event: got %v, want %v of %q", e, want, id)
		}
	}
	next(pb.WatchResponse_TYPE_CURRENT, "c1")
	next(pb.WatchResponse_TYPE_SYNCED, "")
	other := open(reg, tracker.Outbound, tracker.KindTCP) // not selected
	another := open(reg, tracker.Inbound, tracker.KindTCP)
	next(pb.WatchResponse_TYPE_OPENED, "c3")
	reg.BeginDrain("api", reg.Now(), reg.Now()+1e9)
	next(pb.WatchResponse_TYPE_PHASE, "")
	for _, x := range []*tracker.Conn{other, another, c} {
		x.End(tracker.End{Fate: tracker.Cut, By: tracker.ByLastcall, How: tracker.HowExit})
	}
	next(pb.WatchResponse_TYPE_ENDED, "c3")
	next(pb.WatchResponse_TYPE_ENDED, "c1")
}

func TestGRPCWatchRefreshAndDrain(t *testing.T) {
	cc, _, reg := dial(t, "")
	c := open(reg, tracker.Inbound, tracker.KindTCP)
	defer c.End(tracker.End{Fate: tracker.Completed, By: tracker.ByClient, How: tracker.HowFIN})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	api := pb.NewTrackerClient(cc)
	w, err := api.Watch(ctx, &pb.WatchRequest{Selection: &pb.Selection{What: pb.What_WHAT_CONNECTION}, Refresh: durationpb.New(100 * time.Millisecond)})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		for _, want := range []pb.WatchResponse_Type{pb.WatchResponse_TYPE_CURRENT, pb.WatchResponse_TYPE_SYNCED} {
			if e, err := w.Recv(); err != nil || e.GetType() != want {
				t.Fatalf("got %v (%v), want %v", e, err, want)
			}
		}
	}
	d, err := api.WatchDrain(ctx, &pb.WatchDrainRequest{})
	if err != nil {
		t.Fatal(err)
	}
	health, err := healthpb.NewHealthClient(cc).Watch(ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if h, err := health.Recv(); err != nil || h.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health before the drain: %v, %v", h, err)
	}
	for i, want := range []pb.Phase{pb.Phase_PHASE_SERVING, pb.Phase_PHASE_LAMEDUCK, pb.Phase_PHASE_DONE} {
		switch i {
		case 1:
			reg.BeginDrain("signal", reg.Now(), reg.Now()+1e9)
		case 2:
			reg.SetPhase(tracker.Done)
		}
		for {
			e, err := d.Recv()
			if err != nil {
				t.Fatalf("before %v: %v", want, err)
			}
			if e.GetDrain().GetPhase() == want {
				break
			}
		}
	}
	if _, err := d.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("after done: %v", err)
	}
	if h, err := health.Recv(); err != nil || h.GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("health in the drain: %v, %v", h, err)
	}
}

func TestGRPCTokenHealthReflection(t *testing.T) {
	cc, _, _ := dial(t, "secret")
	health := healthpb.NewHealthClient(cc)
	for token, want := range map[string]codes.Code{"": codes.Unauthenticated, "Bearer wrong": codes.Unauthenticated, "Bearer secret": codes.OK} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", token)
		if _, err := health.Check(ctx, &healthpb.HealthCheckRequest{Service: "lastcall.v1.Tracker"}); status.Code(err) != want {
			t.Errorf("authorization %q: got %v, want %v", token, err, want)
		}
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer secret")
	if _, err := health.Check(ctx, &healthpb.HealthCheckRequest{Service: "other"}); status.Code(err) != codes.NotFound {
		t.Errorf("another service: %v", err)
	}
	refl, err := reflectionpb.NewServerReflectionClient(cc).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := refl.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	res, err := refl.Recv()
	if err != nil {
		t.Fatal(err)
	}
	names := res.String()
	for _, want := range []string{"lastcall.v1.Tracker", "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"} {
		if !strings.Contains(names, `"`+want+`"`) {
			t.Errorf("reflection names no %s: %s", want, names)
		}
	}
}

// The tracker's enums and the proto's have the same names in the same order.
func TestEnumsInProto(t *testing.T) {
	check := func(prefix string, names map[int32]string, shift int, values ...interface{ String() string }) {
		t.Helper()
		if len(names) != len(values)+1 {
			t.Errorf("%s: %d names for %d values", prefix, len(names)-1, len(values))
		}
		for i, v := range values {
			if got, want := names[int32(i+shift)], prefix+strings.ToUpper(v.String()); got != want {
				t.Errorf("%s: got %q, want %q", prefix, got, want)
			}
		}
	}
	check("KIND_", pb.Kind_name, 1, stringers(tracker.AllKinds())...)
	check("DIRECTION_", pb.Direction_name, 1, stringers(tracker.AllDirections())...)
	check("FATE_", pb.Fate_name, 1, stringers(tracker.AllFates())...)
	check("PARTY_", pb.Party_name, 1, stringers(tracker.AllParties())...)
	check("HOW_", pb.How_name, 1, stringers(tracker.AllHows())...)
	check("STAGE_", pb.Stage_name, 1, stringers(tracker.AllStages())...)
	check("CLASS_", pb.Class_name, 1, stringers(tracker.AllClasses())...)
	check("WAITING_ON_", pb.WaitingOn_name, 1, stringers(tracker.AllWaitings())...)
	check("PHASE_", pb.Phase_name, 1, stringers(tracker.AllPhases())...)
	check("WHAT_", pb.What_name, 1, stringers(tracker.AllWhats())...)
	check("STATE_", pb.State_name, 1, tracker.StateOpen, tracker.StateClosed, tracker.StateSurvivors, tracker.StateAny)
	check("SORT_", pb.Sort_name, 1, tracker.SortOldest, tracker.SortNewest, tracker.SortIdle, tracker.SortBytes, tracker.SortEnded)
	for i, e := range []tracker.EventType{tracker.EventOpened, tracker.EventEnded, tracker.EventFarewell, tracker.EventPhase} {
		if got, want := pb.WatchResponse_Type_name[int32(i)+3], "TYPE_"+strings.ToUpper(e.String()); got != want {
			t.Errorf("event: got %q, want %q", got, want)
		}
	}
}

func stringers[T interface{ String() string }](in []T) []interface{ String() string } {
	out := make([]interface{ String() string }, len(in))
	for i, v := range in {
		out[i] = v
	}
	return out
}
