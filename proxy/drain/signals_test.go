package drain

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastcall-proxy/lastcall/tracker"
	"github.com/lastcall-proxy/lastcall/tracker/trackertest"
)

// stuck is an actor whose connections never leave, not even when cut.
type stuck struct{ actor }

func (s *stuck) Cut()         { s.note("cut") }
func (s *stuck) End([]uint64) {}

// rig runs a controller over connections with a WebSocket each; those not in conns are ended by the function returned.
func rig(t *testing.T, l Limits, a Actor, conns map[uint64]*tracker.Conn, n int) (*Controller, func()) {
	reg := trackertest.New(t, tracker.Config{Shards: 1, Now: func() int64 { return time.Now().UnixNano() }})
	var cs []*tracker.Conn
	for range n {
		k := reg.Shard(0).OpenConn(tracker.ConnFacts{Client: "c", App: "a", OpenedAt: reg.Now()})
		k.SetStage(tracker.StageIdle)
		k.OpenStream(tracker.KindWebSocket, reg.Now())
		if conns != nil {
			conns[k.ID()] = k
		}
		cs = append(cs, k)
	}
	c := New(Config{Limits: l}, reg, a)
	ctx, cancel := context.WithCancel(t.Context())
	go c.Run(ctx)
	return c, func() {
		cancel()
		synctest.Wait()
		if conns == nil {
			for _, k := range cs {
				e := tracker.End{Fate: tracker.Cut, By: tracker.ByLastcall, How: tracker.HowExit}
				k.EndStreams(e)
				k.End(e)
			}
		}
	}
}

func TestSignalAfterAPIDrainIsNotASecondSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &stuck{actor{start: time.Now()}}
		c, stop := rig(t, Limits{Lameduck: 5 * time.Second, Closing: 25 * time.Second, Deadline: 30 * time.Second}, a, nil, 1)
		defer stop()
		c.Start("api")
		time.Sleep(3 * time.Second)
		c.Signal("SIGTERM")
		time.Sleep(time.Second)
		if p := c.reg.Phase(); p != tracker.Lameduck {
			t.Errorf("first signal, 3s after an API drain: phase %v at 4s", p)
		}
	})
}

func TestSecondSignalIsDoneWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &stuck{actor{start: time.Now()}}
		c, stop := rig(t, Limits{Lameduck: 5 * time.Second, Closing: 25 * time.Second, Deadline: 30 * time.Second}, a, nil, 1)
		defer stop()
		c.Signal("SIGTERM")
		time.Sleep(2 * time.Second)
		c.Signal("SIGTERM")
		<-c.Done()
		if took := time.Since(a.start); took > 3500*time.Millisecond {
			t.Errorf("cut at 2s, done at %v", took)
		}
	})
}

func TestCancelThenStartAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &stuck{actor{start: time.Now()}}
		c, stop := rig(t, Limits{Lameduck: 5 * time.Second, Closing: 25 * time.Second, Deadline: 30 * time.Second}, a, nil, 1)
		defer stop()
		c.Start("api")
		time.Sleep(10 * time.Second)
		if err := c.Cancel(); err != nil {
			t.Fatal(err)
		}
		c.Start("again")
		synctest.Wait()
		v := c.reg.Drain()
		if v.Phase != tracker.Lameduck || v.Trigger != "again" {
			t.Errorf("phase %v trigger %q", v.Phase, v.Trigger)
		}
	})
}

func TestCancelADoneDrainThenSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &stuck{actor{start: time.Now()}}
		c, stop := rig(t, Limits{Lameduck: 5 * time.Second, Closing: 25 * time.Second, Deadline: 30 * time.Second}, a, nil, 0)
		defer stop()
		c.Start("api")
		<-c.Done()
		if err := c.Cancel(); err != nil {
			t.Fatal(err)
		}
		c.Signal("SIGTERM")
		select {
		case <-c.Done():
			t.Error("new drain is done at once")
		default:
		}
	})
}

func TestWaiterAcrossACancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &stuck{actor{start: time.Now()}}
		c, stop := rig(t, Limits{Lameduck: 5 * time.Second, Closing: 25 * time.Second, Deadline: 30 * time.Second}, a, nil, 1)
		defer stop()
		c.Start("api")
		d := c.Done()
		time.Sleep(6 * time.Second)
		_ = c.Cancel()
		synctest.Wait()
		c.Start("again")
		time.Sleep(time.Minute)
		select {
		case <-d:
		default:
			t.Error("a waiter from before the cancel is never woken, though a drain has ended since")
		}
	})
}

func TestIdleLeaveBeforeAShortClosingWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conns := make(map[uint64]*tracker.Conn)
		a := &actor{start: time.Now(), conns: conns, stays: map[uint64]bool{}}
		c, stop := rig(t, Limits{Lameduck: 500 * time.Millisecond, Closing: 1500 * time.Millisecond, Deadline: 2 * time.Second}, a, conns, 200)
		defer stop()
		for _, k := range conns {
			k.EndStreams(tracker.End{Fate: tracker.Completed, By: tracker.ByApp, How: tracker.HowProtocol})
		}
		c.Start("api")
		<-c.Done()
		if took := time.Since(a.start); took > 1500*time.Millisecond {
			t.Errorf("done after %v, want before the closing window at 1.5s", took)
		}
	})
}
