package load

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// grpcStream is a streaming call: both ways (numbered messages are expected back), the server's (one question, numbered
// answers) or the client's (numbered messages, at the end one answer that says how many came).
type grpcStream struct {
	sending sync.Mutex // SendMsg and CloseSend must not meet

	cc      *grpc.ClientConn
	s       grpc.ClientStream
	spec    Spec
	addr    string
	watch   retryWatch
	answers uint64
	leave   context.CancelFunc
}

func dialGRPCStream(ctx context.Context, s Spec, to endpoint) (session, error) {
	g := &grpcStream{spec: s}
	cc, err := newGRPC(&s, to, &g.watch)
	if err != nil {
		return nil, err
	}
	g.cc = cc
	live, leave := context.WithCancel(context.WithoutCancel(ctx))
	g.leave = leave
	stop := context.AfterFunc(ctx, leave)
	g.s, err = cc.NewStream(live, &grpc.StreamDesc{ClientStreams: s.Mode != ModeServer, ServerStreams: s.Mode != ModeClient}, to.path)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		leave()
		_ = cc.Close()
		o, wire := grpcCause(err, g.watch.said.Load())
		return nil, &outcomeError{o, wire, g.watch.last()}
	}
	if s.Mode == ModeServer {
		if err := g.ask(); err != nil {
			g.abort()
			o, wire := grpcCause(err, g.watch.said.Load())
			return nil, &outcomeError{o, wire, g.watch.last()}
		}
	}
	if p, ok := peer.FromContext(g.s.Context()); ok && p.LocalAddr != nil {
		g.addr = p.LocalAddr.String()
	} else {
		g.addr = g.watch.last()
	}
	return g, nil
}

// ask sends the one question of a server's stream; the embedded app takes the interval from it.
func (g *grpcStream) ask() error {
	b := g.spec.Data
	if b == nil {
		b = []byte(g.spec.Interval.String())
	}
	if err := g.s.SendMsg(&b); err != nil && !errors.Is(err, io.EOF) { // EOF: RecvMsg knows why
		return err
	}
	return g.s.CloseSend()
}

func (g *grpcStream) send(n uint64) error {
	g.sending.Lock()
	defer g.sending.Unlock()
	b := g.spec.Data
	if b == nil {
		b = numbered(n, g.spec.Size)
	}
	return g.s.SendMsg(&b)
}

func (g *grpcStream) recv() (uint64, error) {
	if g.collects() && g.answers > 0 {
		return 0, io.EOF
	}
	var b []byte
	if err := g.s.RecvMsg(&b); err != nil {
		return 0, err
	}
	if g.collects() {
		g.answers++
		if n, err := numberOf(b); err == nil && g.spec.Data == nil {
			return n, nil
		}
		return allOfThem, nil // somebody else's answer: it says no number
	}
	if g.spec.Data != nil { // somebody else's message has no number: answers are taken in their order
		g.answers++
		return g.answers - 1, nil
	}
	return numberOf(b)
}

func (g *grpcStream) listens() bool { return g.spec.Mode == ModeServer }

// collects: the server's only answer is the number of messages that it has taken.
func (g *grpcStream) collects() bool { return g.spec.Mode == ModeClient }
func (g *grpcStream) local() string  { return g.addr }

// ending: a status in trailers is the server's word, also UNAVAILABLE, which says that it goes.
func (g *grpcStream) ending(err error, _ bool) (Outcome, string) {
	if errors.Is(err, io.EOF) {
		return Told, "grpc-status 0"
	}
	o, wire := grpcCause(err, g.watch.said.Load())
	if o == GRPCStatus && status.Code(err) == codes.Unavailable {
		return Told, wire
	}
	return o, wire
}

func (g *grpcStream) close() {
	if g.spec.Mode == ModeServer {
		g.leave() // CANCEL is all that a listener can say
		return
	}
	g.sending.Lock()
	defer g.sending.Unlock()
	_ = g.s.CloseSend()
}

func (g *grpcStream) abort() { g.leave(); _ = g.cc.Close() }
