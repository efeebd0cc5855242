package app

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/coder/websocket"
)

func (a *App) webSocket(w http.ResponseWriter, r *http.Request) {
	plan := a.script(r)
	c, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	c.SetReadLimit(64 << 20)
	a.ledger.begin("websocket")
	whole := false
	defer func() { a.ledger.end("websocket", whole); _ = c.CloseNow() }()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	told := make(chan struct{})
	go func() {
		select {
		case <-a.going:
			_ = c.Close(websocket.StatusGoingAway, "")
		case <-ctx.Done():
		}
		close(told)
	}()
	if every, err := time.ParseDuration(r.URL.Query().Get("every")); err == nil && every > 0 {
		whole = a.push(c, plan, every)
		return
	}
	for n := uint64(1); ; n++ {
		typ, b, err := c.Read(ctx)
		if err != nil {
			var closed websocket.CloseError
			whole = errors.As(err, &closed)
			select {
			case <-a.going:
				<-told
				whole = true
			default:
			}
			return
		}
		a.ledger.message("websocket", true)
		times, reset := plan.answers(n)
		if reset {
			return
		}
		for range times {
			if c.Write(ctx, typ, b) != nil {
				return
			}
			a.ledger.message("websocket", false)
		}
	}
}

// push sends a numbered message ?every=100ms and takes none.
func (a *App) push(c *websocket.Conn, plan *script, every time.Duration) (whole bool) {
	ctx := c.CloseRead(context.Background())
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := uint64(1); ; n++ {
		times, reset := plan.answers(n)
		if reset {
			return false
		}
		for range times {
			if c.Write(ctx, websocket.MessageText, strconv.AppendUint(nil, n, 10)) != nil {
				return false
			}
			a.ledger.message("websocket", false)
		}
		select {
		case <-tick.C:
		case <-ctx.Done(): // the client has left, or was told to
			return true
		}
	}
}
