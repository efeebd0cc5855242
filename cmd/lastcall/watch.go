package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lastcall-proxy/lastcall/tracker/trackerpb"
)

// rpc is a gRPC client of the sidecar's admin address, and a context that carries the token.
func (c *client) rpc(ctx context.Context) (trackerpb.TrackerClient, context.Context, func(), error) {
	token, err := c.token()
	if err != nil {
		return nil, nil, nil, err
	}
	if token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	cc, err := grpc.NewClient("passthrough:///"+c.addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		return nil, nil, nil, fmt.Errorf("--admin %q: %w", c.addr, err)
	}
	return trackerpb.NewTrackerClient(cc), ctx, func() { _ = cc.Close() }, nil
}

// follow shows the table again and again, and between two tables what ended meanwhile. It ends with the sidecar, which is
// no failure, or when it is interrupted.
func (o *connsOptions) follow(ctx context.Context, out io.Writer, terminal bool) error {
	api, ctx, done, err := o.rpc(ctx)
	if err != nil {
		return err
	}
	defer done()
	req, err := o.watchRequest()
	if err != nil {
		return err
	}
	stream, err := api.Watch(ctx, req)
	if err != nil {
		return failed(fmt.Errorf("no sidecar at %s: %s", o.addr, status.Convert(err).Message()))
	}
	v := watchView{o: o, out: out, terminal: terminal}
	for first := true; ; first = false {
		e, err := stream.Recv()
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return nil // interrupted: that is how a watch ends
		case status.Code(err) == codes.InvalidArgument:
			return errors.New(status.Convert(err).Message())
		case first:
			return failed(fmt.Errorf("no sidecar at %s: %s", o.addr, status.Convert(err).Message()))
		default:
			if o.output == "json" {
				return nil
			}
			_, err = fmt.Fprintf(out, "%s%s  the sidecar is gone\n", v.between(), time.Now().Format(time.TimeOnly))
			return failed(err)
		}
		if err := v.take(e); err != nil {
			return failed(err)
		}
	}
}

func (o *connsOptions) watchRequest() (*trackerpb.WatchRequest, error) {
	sel := &trackerpb.Selection{What: trackerpb.What_WHAT_STREAM}
	if o.connections {
		sel.What = trackerpb.What_WHAT_CONNECTION
	}
	switch {
	case o.closed:
		sel.State = trackerpb.State_STATE_CLOSED
	case o.survivors:
		sel.State = trackerpb.State_STATE_SURVIVORS
	}
	if o.kind != "" {
		k, ok := trackerpb.Kind_value["KIND_"+strings.ToUpper(o.kind)]
		if !ok || k == 0 {
			return nil, fmt.Errorf("--kind %q: no such kind", o.kind)
		}
		sel.Kind = trackerpb.Kind(k)
	}
	if o.older > 0 {
		sel.Older = durationpb.New(o.older)
	}
	if o.idle > 0 {
		sel.Idle = durationpb.New(o.idle)
	}
	return &trackerpb.WatchRequest{Selection: sel, Refresh: durationpb.New(refresh), Limit: int32(o.limit)}, nil
}

// refresh is the time between two tables.
const refresh = time.Second

// maxEnds bounds the ends that are told between two tables: a person reads no more, the count goes on.
const maxEnds = 20

type watchView struct {
	o        *connsOptions
	out      io.Writer
	terminal bool // redraw in place
	rows     []row
	ends     []string
	more     int // ends that found no room
	missed   uint64
}

func (v *watchView) take(e *trackerpb.WatchResponse) error {
	v.missed += e.GetDropped()
	if v.o.output == "json" {
		return writeEvent(v.out, e)
	}
	r := e.GetRecord()
	switch e.GetType() {
	case trackerpb.WatchResponse_TYPE_CURRENT:
		v.rows = append(v.rows, rowOf(r))
	case trackerpb.WatchResponse_TYPE_ENDED:
		if r.GetPeer().GetClass() == trackerpb.Class_CLASS_NORMAL {
			v.end(e)
		}
	case trackerpb.WatchResponse_TYPE_PHASE:
		v.ends = append(v.ends, fmt.Sprintf("%s  phase %s", e.GetAt().AsTime().Local().Format(time.TimeOnly), name(e.GetPhase(), "PHASE_")))
	case trackerpb.WatchResponse_TYPE_SYNCED:
		return v.show(e)
	case trackerpb.WatchResponse_TYPE_OPENED, trackerpb.WatchResponse_TYPE_FAREWELL, trackerpb.WatchResponse_TYPE_UNSPECIFIED: // the next table has them
	}
	return nil
}

func (v *watchView) end(e *trackerpb.WatchResponse) {
	if len(v.ends) >= maxEnds {
		v.more++
		return
	}
	r := rowOf(e.GetRecord())
	what := r.Path
	if what == "" {
		what = r.Authority
	}
	v.ends = append(v.ends, strings.TrimSpace(fmt.Sprintf("%s  %-8s %-9s %s by %s after %s  %s", e.GetAt().AsTime().Local().Format(time.TimeOnly), r.ID, r.Kind, r.Fate, r.By, span(r.Age), what)))
}

func (v *watchView) show(e *trackerpb.WatchResponse) error {
	var b strings.Builder
	if v.terminal {
		b.WriteString("\x1b[H\x1b[2J") // home, clear
	}
	fmt.Fprintf(&b, "\n%s  %s\n", e.GetAt().AsTime().Local().Format(time.TimeOnly), name(e.GetPhase(), "PHASE_"))
	what := "streams"
	if v.o.connections {
		what = "connections"
	}
	if err := table(&b, v.rows, what, v.o.output == "wide", v.o.closed); err != nil {
		return err
	}
	b.WriteString(v.between())
	v.rows = v.rows[:0]
	_, err := io.WriteString(v.out, b.String())
	return err
}

// between is what happened since the last table, which is then told.
func (v *watchView) between() string {
	var b strings.Builder
	for _, line := range v.ends {
		b.WriteString(line + "\n")
	}
	if v.more > 0 {
		fmt.Fprintf(&b, "and %d more ended\n", v.more)
	}
	if v.missed > 0 {
		fmt.Fprintf(&b, "%d events were missed: more happens than this can read\n", v.missed)
	}
	v.ends, v.more, v.missed = v.ends[:0], 0, 0
	return b.String()
}

// name is the JSON form's name of an enum's value.
func name(v fmt.Stringer, prefix string) string {
	return strings.ToLower(strings.TrimPrefix(v.String(), prefix))
}

// isTerminal: a table is redrawn in place only where somebody sees it.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}

func rowOf(r *trackerpb.Record) row {
	out := row{
		ID: r.GetId(), Kind: name(r.GetKind(), "KIND_"), Client: r.GetClient(), App: r.GetApp(), Method: r.GetMethod(), Path: r.GetPath(), Authority: r.GetAuthority(),
		Age: r.GetAge().AsDuration().Seconds(), Waiting: name(r.GetWaitingOn(), "WAITING_ON_"), Reason: r.GetReason(), Status: r.GetStatus(),
	}
	out.Idle.Client, out.Idle.App = r.GetIdle().GetClient().AsDuration().Seconds(), r.GetIdle().GetApp().AsDuration().Seconds()
	out.Bytes.Client, out.Bytes.App = uint64(r.GetBytes().GetClient()), uint64(r.GetBytes().GetApp())
	out.Messages.Client, out.Messages.App = uint64(r.GetMessages().GetClient()), uint64(r.GetMessages().GetApp())
	if h := r.GetHalfClosed(); h != trackerpb.Party_PARTY_UNSPECIFIED {
		out.Half = name(h, "PARTY_")
	}
	if f := r.GetFate(); f != trackerpb.Fate_FATE_UNSPECIFIED {
		out.Fate, out.By, out.How, out.Stage = name(f, "FATE_"), name(r.GetBy(), "PARTY_"), name(r.GetHow(), "HOW_"), name(r.GetStage(), "STAGE_")
	}
	return out
}
