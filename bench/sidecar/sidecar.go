// Package sidecar talks to a running sidecar's gRPC API, as anyone may.
package sidecar

import (
	"context"
	"errors"
	"fmt"
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

// Client is a connection to one sidecar's admin address.
type Client struct {
	Addr  string
	Flag  string // that errors name
	Token string // of the admin API; empty: none
	API   trackerpb.TrackerClient

	cc     *grpc.ClientConn
	ctx    context.Context // of the watches
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// Dial makes a client; whether anybody is there shows at the first call. tokenFile may be empty. Watches end with ctx.
func Dial(ctx context.Context, addr, tokenFile string) (*Client, error) {
	c := &Client{Addr: addr, Flag: "--sidecar"}
	if tokenFile != "" {
		b, err := os.ReadFile(tokenFile)
		if err != nil {
			return nil, fmt.Errorf("--sidecar-token-file: %w", err)
		}
		c.Token = strings.TrimSpace(string(b))
	}
	cc, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		return nil, fmt.Errorf("--sidecar %s: %w", addr, err)
	}
	c.cc, c.API = cc, trackerpb.NewTrackerClient(cc)
	c.ctx, c.cancel = context.WithCancel(ctx)
	return c, nil
}

// Auth adds the token to a call.
func (c *Client) Auth(ctx context.Context) context.Context {
	if c.Token == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+c.Token)
}

// Error puts what a call returned into words.
func (c *Client) Error(err error) error {
	return fmt.Errorf("%s %s: %s", c.Flag, c.Addr, status.Convert(err).Message())
}

// subscribeTime is how long a sidecar has to answer a subscription; it lists what is open first.
const subscribeTime = 10 * time.Second

// Watch subscribes to both kinds of record and returns once no event can be missed any more, or fails when that takes too long
// or until is over. event is called from two goroutines; ended is called by each with what ended it.
func (c *Client) Watch(until context.Context, event func(e *trackerpb.WatchResponse, what trackerpb.What), ended func(error)) error {
	until, done := context.WithTimeoutCause(until, subscribeTime, fmt.Errorf("no answer within %v", subscribeTime))
	defer done()
	stop := context.AfterFunc(until, c.cancel)
	defer stop()
	for _, what := range []trackerpb.What{trackerpb.What_WHAT_CONNECTION, trackerpb.What_WHAT_STREAM} {
		w, err := c.API.Watch(c.Auth(c.ctx), &trackerpb.WatchRequest{Selection: &trackerpb.Selection{What: what}, Limit: 1, Types: []trackerpb.WatchResponse_Type{trackerpb.WatchResponse_TYPE_ENDED, trackerpb.WatchResponse_TYPE_PHASE}})
		if err == nil {
			for { // up to the mark behind what is open: from there on every event comes
				e, rerr := w.Recv()
				if err = rerr; err != nil || e.GetType() == trackerpb.WatchResponse_TYPE_SYNCED {
					break
				}
			}
		}
		if until.Err() != nil {
			return fmt.Errorf("%s %s: %w", c.Flag, c.Addr, context.Cause(until))
		}
		if err != nil {
			return c.Error(err)
		}
		c.wg.Go(func() {
			for {
				e, err := w.Recv()
				if err != nil {
					ended(errors.New(status.Convert(err).Message()))
					return
				}
				event(e, what)
			}
		})
	}
	return nil
}

// Close ends the watches and waits for them.
func (c *Client) Close() {
	c.cancel()
	_ = c.cc.Close()
	c.wg.Wait()
}

// Word is the label value of an enum of the API.
func Word(v fmt.Stringer, prefix string) string {
	return strings.ToLower(strings.TrimPrefix(v.String(), prefix))
}
