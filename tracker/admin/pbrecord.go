package admin

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lastcall-proxy/lastcall/tracker"
	pb "github.com/lastcall-proxy/lastcall/tracker/trackerpb"
)

// The enums of the proto have the tracker's values in the tracker's order behind an unspecified one, but for the fate,
// whose zero is "open" in both. TestEnumsInProto holds their names against each other.

func wire[To ~int32, From ~uint8](v From) To { return To(v) + 1 }

// party is unspecified for nobody: an end without a culprit is said by ended.
func party(p tracker.Party, ended bool) pb.Party {
	if p == tracker.ByUnknown && !ended {
		return pb.Party_PARTY_UNSPECIFIED
	}
	return wire[pb.Party](p)
}

func seconds(s tracker.Seconds) *durationpb.Duration { return durationpb.New(s.Duration()) }

func maybe(s *tracker.Seconds) *durationpb.Duration {
	if s == nil {
		return nil
	}
	return seconds(*s)
}

func moment(t tracker.Time) *timestamppb.Timestamp {
	if t == 0 {
		return nil
	}
	return timestamppb.New(t.Time())
}

func record(r *tracker.Record) *pb.Record {
	ended := r.Fate != tracker.FateOpen
	out := &pb.Record{
		Id: r.ID, Conn: r.Conn, Kind: wire[pb.Kind](r.Kind), Direction: wire[pb.Direction](r.Direction), Listener: r.Listener, Client: r.Client, App: r.App,
		Peer:   &pb.Peer{UserAgent: r.Peer.UserAgent, Identity: r.Peer.Identity, Sni: r.Peer.SNI, Alpn: r.Peer.ALPN, Class: wire[pb.Class](r.Peer.Class)},
		Method: r.Method, Path: r.Path, Authority: r.Authority, OpenedAt: moment(r.OpenedAt), Age: seconds(r.Age),
		Idle:   &pb.PerSide{Client: seconds(r.Idle.Client), App: seconds(r.Idle.App)},
		Bytes:  &pb.CountPerSide{Client: r.Bytes.Client, App: r.Bytes.App},
		Status: r.Status, GrpcStatus: r.GRPCStatus, ResetCode: r.ResetCode, CloseCode: int32(r.CloseCode),
		LongLived: r.LongLived, WaitingOn: wire[pb.WaitingOn](r.WaitingOn), HalfClosed: party(r.HalfClosed, false), HalfClosedFor: maybe(r.HalfClosedAgo),
		Late: r.Late, LateOffset: maybe(r.LateOffset), Survivor: r.Survivor,
		Fate: pb.Fate(r.Fate), By: party(r.By, ended), Stage: wire[pb.Stage](r.Stage), Reason: r.Reason, EndedAt: moment(r.EndedAt), DrainOffset: maybe(r.DrainOffset),
	}
	if ended {
		out.How = wire[pb.How](r.How)
	}
	if r.Messages != nil {
		out.Messages = &pb.CountPerSide{Client: r.Messages.Client, App: r.Messages.App}
	}
	if r.Streams != nil {
		out.StreamsOpen, out.StreamsTotal = int32(r.Streams.Open), int32(r.Streams.Total)
	}
	if f := r.Farewell; f != nil {
		out.Farewell = &pb.Farewell{SentAt: moment(f.SentAt), Kind: f.Kind.String(), Obeyed: f.Obeyed, BeganAfter: f.BeganAfter}
	}
	return out
}

func records(rs []tracker.Record) []*pb.Record {
	out := make([]*pb.Record, len(rs))
	for i := range rs {
		out[i] = record(&rs[i])
	}
	return out
}

func drainOf(v *tracker.DrainView) *pb.Drain {
	return &pb.Drain{
		Phase: wire[pb.Phase](v.Phase), Trigger: v.Trigger, StartedAt: moment(v.StartedAt), Deadline: moment(v.Deadline),
		Connections: int64(v.Remaining.Connections), Streams: int64(v.Remaining.Streams), StreamsByKind: counts(v.Remaining.ByKind),
		LateConnections: int64(v.Late.Connections), LateStreams: int64(v.Late.Streams), LastConnection: maybe(v.Late.LastConnection), LastStream: maybe(v.Late.LastStream),
		Survivors: records(v.Survivors), ConnectionFates: counts(v.Fates.Connections), StreamFates: counts(v.Fates.Streams),
	}
}

func http2View(v *HTTP2) *pb.HTTP2 {
	if v == nil {
		return nil
	}
	out := &pb.HTTP2{
		Window:        &pb.CountPerSide{Client: v.Window.Client, App: v.Window.App},
		PingRtt:       &pb.PerSide{Client: maybe(v.PingRTT.Client), App: maybe(v.PingRTT.App)},
		StreamWindows: make(map[string]*pb.CountPerSide, len(v.Streams)),
	}
	for id, s := range v.Streams {
		out.StreamWindows[id] = &pb.CountPerSide{Client: s.Window.Client, App: s.Window.App}
	}
	return out
}

func counts[N int | uint64](in map[string]N) map[string]int64 {
	out := make(map[string]int64, len(in))
	for k, n := range in {
		out[k] = int64(n)
	}
	return out
}

// nonNegative reads a duration that must not be negative; absent is zero.
func nonNegative(name string, d *durationpb.Duration) (time.Duration, error) {
	if d == nil {
		return 0, nil
	}
	if err := d.CheckValid(); err != nil || d.AsDuration() < 0 {
		return 0, badField(name, "must be a duration that is not negative")
	}
	return d.AsDuration(), nil
}
