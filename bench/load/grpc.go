package load

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"
)

// Raw passes messages as they are: any method of any server can be called without its types.
type Raw struct{}

// Name is encoding.CodecV2's.
func (Raw) Name() string { return "proto" }

// Marshal takes a *[]byte.
func (Raw) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("raw: %T", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(*b)}, nil
}

// Unmarshal fills a *[]byte.
func (Raw) Unmarshal(data mem.BufferSlice, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("raw: %T", v)
	}
	*b = data.Materialize()
	return nil
}

// retryWatch sees what grpc-go hides: calls that it sent again because the server had not looked at them.
type retryWatch struct {
	retried func(began time.Time)
	said    atomic.Bool // trailers have come: the status is the server's own word
	mu      sync.Mutex
	local   string
}

func (w *retryWatch) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func (w *retryWatch) HandleRPC(_ context.Context, s stats.RPCStats) {
	if _, ok := s.(*stats.InTrailer); ok {
		w.said.Store(true)
	}
	if b, ok := s.(*stats.Begin); ok && b.IsTransparentRetryAttempt && w.retried != nil {
		w.retried(b.BeginTime)
	}
}

func (w *retryWatch) TagConn(ctx context.Context, i *stats.ConnTagInfo) context.Context {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i.LocalAddr != nil {
		w.local = i.LocalAddr.String()
	}
	return ctx
}

func (*retryWatch) HandleConn(context.Context, stats.ConnStats) {}

func (w *retryWatch) last() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.local
}

// grpcBuffer is each connection's; grpc-go's own 32 KiB a direction are 125 MiB for 2000 sessions.
const grpcBuffer = 8 << 10

func newGRPC(s *Spec, to endpoint, w *retryWatch) (*grpc.ClientConn, error) {
	creds := insecure.NewCredentials()
	if to.secure {
		creds = credentials.NewTLS(tlsConfig(s, to))
	}
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(creds), grpc.WithStatsHandler(w), grpc.WithNoProxy(), grpc.WithUserAgent("lastcall-load"),
		grpc.WithReadBufferSize(grpcBuffer), grpc.WithWriteBufferSize(grpcBuffer),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(Raw{}), grpc.MaxCallRecvMsgSize(maxSize)),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return to.connect(ctx)
		}),
	}
	if s.Retry == "" {
		opts = append(opts, grpc.WithDisableRetry())
	}
	return grpc.NewClient("passthrough:///"+to.addr, opts...)
}

// unaryClient makes one call at a time. grpc-go sends a call again by itself when the server is known not to have looked at
// it: unless retry=library allows that, it is counted as the failure that it hides.
type unaryClient struct {
	spec   Spec
	to     endpoint
	ledger *Ledger
	cc     *grpc.ClientConn
	watch  retryWatch
	hidden atomic.Bool
}

func (c *unaryClient) do(ctx context.Context) (Outcome, string, string) {
	if c.cc == nil {
		c.watch.retried = func(began time.Time) {
			c.hidden.Store(true)
			if c.spec.Retry != "" {
				c.ledger.side(began, RetriedLibrary, "grpc-go sent it again", c.watch.last())
			}
		}
		cc, err := newGRPC(&c.spec, c.to, &c.watch)
		if err != nil {
			return Protocol, err.Error(), ""
		}
		c.cc = cc
	}
	c.hidden.Store(false)
	c.watch.said.Store(false)
	in, out := c.spec.Data, []byte(nil)
	if in == nil {
		in = make([]byte, c.spec.Size)
	}
	var p peer.Peer
	before := c.watch.last()
	err := c.cc.Invoke(ctx, c.to.path, &in, &out, grpc.Peer(&p), grpc.WaitForReady(false))
	local := c.watch.last()
	if p.LocalAddr != nil {
		local = p.LocalAddr.String()
	}
	if c.hidden.Load() && c.spec.Retry == "" {
		return StreamRefused, "sent again by grpc-go", before
	}
	o, wire := grpcCause(err, c.watch.said.Load())
	if o == Refused || o == Reset || o == Closed { // its backoff repeats the last error, and would hide when somebody listens again
		c.close()
	}
	return o, wire, local
}

func (c *unaryClient) close() {
	if c.cc != nil {
		_ = c.cc.Close()
		c.cc = nil
	}
}
