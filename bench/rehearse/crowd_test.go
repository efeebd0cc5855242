package rehearse_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// habit is what a client does when its stream is over.
type habit string

const (
	naive   habit = "naive"
	backoff habit = "backoff"
	never   habit = "never"
)

// wsClient keeps its own log.
type wsClient struct {
	id    string
	habit habit
	addr  string
	ping  time.Duration // 0: it never asks

	mu       sync.Mutex
	noticed  time.Time // its first stream was over
	attempts []time.Time
	back     time.Time // the handshake that succeeded was sent
}

func (c *wsClient) dial(ctx context.Context) (*websocket.Conn, time.Time, error) {
	var sent time.Time
	var mu sync.Mutex
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { mu.Lock(); sent = time.Now(); mu.Unlock() }})
	conn, resp, err := websocket.Dial(ctx, "ws://"+c.addr+"/ws", &websocket.DialOptions{HTTPHeader: http.Header{"X-Client-Id": {c.id}}})
	if err != nil && resp != nil && resp.Body != nil {
		_ = resp.Body.Close()
	}
	mu.Lock()
	defer mu.Unlock()
	return conn, sent, err
}

// live holds a stream, and does as its habit is when it is over. up is told once the first is open.
func (c *wsClient) live(ctx context.Context, up *sync.WaitGroup) error {
	conn, _, err := c.dial(ctx)
	up.Done()
	if err != nil {
		return err
	}
	c.hold(ctx, conn)
	c.mu.Lock()
	c.noticed = time.Now()
	c.mu.Unlock()
	if c.habit == never {
		return nil
	}
	wait := time.Second
	for ctx.Err() == nil {
		if c.habit == backoff { // a tenth of a second and full jitter: up to 1 s first, 2 s then
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(110*time.Millisecond + rand.N(wait)):
			}
			wait = min(2*wait, 2*time.Second)
		}
		conn, sent, err := c.dial(ctx)
		c.mu.Lock()
		if !sent.IsZero() {
			c.attempts = append(c.attempts, sent)
		}
		if err == nil {
			c.back = sent
		}
		c.mu.Unlock()
		if err == nil {
			c.hold(ctx, conn)
			return nil
		}
		if c.habit == naive {
			time.Sleep(5 * time.Millisecond) // its library's own breath
		}
	}
	return nil
}

// hold reads until the stream is over.
func (c *wsClient) hold(ctx context.Context, conn *websocket.Conn) {
	defer func() { _ = conn.CloseNow() }()
	if c.ping > 0 {
		go func() {
			for {
				ctx, cancel := context.WithTimeout(ctx, c.ping)
				err := conn.Ping(ctx)
				cancel()
				if err != nil {
					_ = conn.CloseNow()
					return
				}
				time.Sleep(c.ping)
			}
		}()
	}
	for {
		if _, _, err := conn.Read(ctx); err != nil {
			return
		}
	}
}

func crowd(t *testing.T, p *pod, each int, ping time.Duration) (all []*wsClient, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg, up sync.WaitGroup
	for i := range each {
		for _, h := range []habit{naive, backoff, never} {
			c := &wsClient{id: fmt.Sprintf("%s-%d", h, i), habit: h, addr: p.addr}
			if ping > 0 && i%2 == 0 {
				c.ping = ping
			}
			all = append(all, c)
			up.Add(1)
			wg.Go(func() {
				if err := c.live(ctx, &up); err != nil {
					t.Error(err)
				}
			})
		}
	}
	up.Wait()
	return all, sync.OnceFunc(func() { cancel(); wg.Wait() })
}
