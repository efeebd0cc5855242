package main

import (
	"encoding/json"
	"fmt"
	"io"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lastcall-proxy/lastcall/tracker"
	"github.com/lastcall-proxy/lastcall/tracker/trackerpb"
)

// writeEvent writes one event in the form of GET /v1/events, whose types it has, and "current" and "synced" beside them.
func writeEvent(out io.Writer, e *trackerpb.WatchResponse) error {
	v := struct {
		Type    string          `json:"type"`
		At      tracker.Time    `json:"at"`
		Phase   tracker.Phase   `json:"phase"`
		Record  *tracker.Record `json:"record,omitempty"`
		Dropped uint64          `json:"dropped,omitempty"`
	}{name(e.GetType(), "TYPE_"), timeOf(e.GetAt()), native[tracker.Phase](e.GetPhase()), nil, e.GetDropped()}
	if e.GetRecord() != nil {
		v.Record = recordOf(e.GetRecord())
	}
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s\n", b)
	return err
}

// native is an enum as the tracker has it: one less than the proto's, whose zero is "unspecified".
func native[To ~uint8, From ~int32](v From) To { return To(max(v, 1) - 1) }

func timeOf(t *timestamppb.Timestamp) tracker.Time {
	if t == nil {
		return 0
	}
	return tracker.Time(t.AsTime().UnixNano())
}

func secondsOf(d *durationpb.Duration) tracker.Seconds {
	return tracker.Seconds(d.AsDuration().Seconds())
}

func maybeSeconds(d *durationpb.Duration) *tracker.Seconds {
	if d == nil {
		return nil
	}
	return new(secondsOf(d))
}

// recordOf is a record in the form that the HTTP API and the fate log have.
func recordOf(r *trackerpb.Record) *tracker.Record {
	out := &tracker.Record{
		What: tracker.WhatStream, ID: r.GetId(), Conn: r.GetConn(), Kind: native[tracker.Kind](r.GetKind()), Direction: native[tracker.Direction](r.GetDirection()),
		Listener: r.GetListener(), Client: r.GetClient(), App: r.GetApp(),
		Peer:   tracker.Peer{UserAgent: r.GetPeer().GetUserAgent(), Identity: r.GetPeer().GetIdentity(), SNI: r.GetPeer().GetSni(), ALPN: r.GetPeer().GetAlpn(), Class: native[tracker.Class](r.GetPeer().GetClass())},
		Method: r.GetMethod(), Path: r.GetPath(), Authority: r.GetAuthority(), OpenedAt: timeOf(r.GetOpenedAt()), Age: secondsOf(r.GetAge()),
		Idle:   tracker.Sides[tracker.Seconds]{Client: secondsOf(r.GetIdle().GetClient()), App: secondsOf(r.GetIdle().GetApp())},
		Bytes:  tracker.Sides[int64]{Client: r.GetBytes().GetClient(), App: r.GetBytes().GetApp()},
		Status: r.GetStatus(), GRPCStatus: r.GetGrpcStatus(), ResetCode: r.GetResetCode(), CloseCode: int(r.GetCloseCode()),
		LongLived: r.GetLongLived(), WaitingOn: native[tracker.WaitingOn](r.GetWaitingOn()), HalfClosed: native[tracker.Party](r.GetHalfClosed()), HalfClosedAgo: maybeSeconds(r.GetHalfClosedFor()),
		Late: r.GetLate(), LateOffset: maybeSeconds(r.GetLateOffset()), Survivor: r.GetSurvivor(),
		Fate: tracker.Fate(r.GetFate()), By: native[tracker.Party](r.GetBy()), How: native[tracker.How](r.GetHow()), Stage: native[tracker.Stage](r.GetStage()),
		Reason: r.GetReason(), EndedAt: timeOf(r.GetEndedAt()), DrainOffset: maybeSeconds(r.GetDrainOffset()),
	}
	if m := r.GetMessages(); m != nil {
		out.Messages = &tracker.Sides[int64]{Client: m.GetClient(), App: m.GetApp()}
	}
	if out.Conn == "" {
		out.What, out.Streams = tracker.WhatConnection, &tracker.ConnStreams{Open: int(r.GetStreamsOpen()), Total: int(r.GetStreamsTotal())}
	}
	if f := r.GetFarewell(); f != nil {
		out.Farewell = &tracker.FarewellRecord{SentAt: timeOf(f.GetSentAt()), Obeyed: f.Obeyed, BeganAfter: f.GetBeganAfter()}
		_ = out.Farewell.Kind.UnmarshalText([]byte(f.GetKind())) // a newer sidecar may have kinds that we don't know
	}
	return out
}
