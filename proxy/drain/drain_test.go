package drain

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastcall-proxy/lastcall/tracker"
	"github.com/lastcall-proxy/lastcall/tracker/trackertest"
)

func TestPhaseAt(t *testing.T) {
	l := Limits{Lameduck: 5 * time.Second, Closing: 25 * time.Second, Deadline: 30 * time.Second}
	tests := []struct {
		name  string
		since time.Duration
		empty bool
		want  tracker.Phase
	}{
		{"at the trigger", 0, false, tracker.Lameduck},
		{"empty, but lameduck is not over", 4 * time.Second, true, tracker.Lameduck},
		{"lameduck over", 5 * time.Second, false, tracker.Draining},
		{"early end", 6 * time.Second, true, tracker.Done},
		{"closing window", 25 * time.Second, false, tracker.Closing},
		{"deadline", 30 * time.Second, false, tracker.Cutting},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := phaseAt(l, tt.since, tt.empty); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestPaceCoversTheWindow(t *testing.T) {
	const n, window = 1000, 4 * time.Second
	at := pace(n, window, rand.New(rand.NewPCG(1, 2)))
	var perTenth [10]int
	for _, d := range at {
		if d < 0 || d >= window {
			t.Fatalf("departure at %v, want within %v", d, window)
		}
		perTenth[d*10/window]++
	}
	if lo, hi := slices.Min(perTenth[:]), slices.Max(perTenth[:]); lo < 98 || hi > 102 {
		t.Errorf("departures per tenth of the window: got %v, want about 100 each", perTenth)
	}
}

// actor ends what it is asked to end, and notes when. Its connections are only touched by the controller's goroutine.
type actor struct {
	start time.Time
	conns map[uint64]*tracker.Conn
	stays map[uint64]bool // not ended by End
	log   []string
	ends  []time.Duration
}

func (a *actor) note(what string)   { a.log = append(a.log, what+" "+time.Since(a.start).String()) }
func (a *actor) Farewell()          { a.note("farewell") }
func (a *actor) Reject(refuse bool) { a.note("reject") }
func (a *actor) Serve()             { a.note("serve") }
func (a *actor) end(id uint64, f tracker.Fate) {
	if c := a.conns[id]; c != nil {
		e := tracker.End{Fate: f, By: tracker.ByLastcall, How: tracker.HowFIN}
		c.EndStreams(e)
		c.End(e)
		delete(a.conns, id)
	}
}
func (a *actor) CloseIdle(ids []uint64) {
	for _, id := range ids {
		if c := a.conns[id]; c != nil && c.Streams() == 0 {
			a.end(id, tracker.Drained)
		}
	}
}
func (a *actor) End(ids []uint64) {
	for _, id := range ids {
		if !a.stays[id] {
			a.ends = append(a.ends, time.Since(a.start))
			a.end(id, tracker.Ended)
		}
	}
}
func (a *actor) Cut() {
	a.note("cut")
	for id := range a.conns {
		a.end(id, tracker.Cut)
	}
}

// play runs a controller over idle, busy and stubborn connections in fake time, and returns when its drain is done.
func play(t *testing.T, idle, busy, stubborn int, during func(c *Controller)) (*actor, time.Duration) {
	t.Helper()
	reg := trackertest.New(t, tracker.Config{Shards: 1, Now: func() int64 { return time.Now().UnixNano() }})
	a := &actor{start: time.Now(), conns: make(map[uint64]*tracker.Conn), stays: make(map[uint64]bool)}
	for i := range idle + busy + stubborn {
		c := reg.Shard(0).OpenConn(tracker.ConnFacts{Client: "c", App: "a", OpenedAt: reg.Now()})
		c.SetStage(tracker.StageIdle)
		if i >= idle {
			c.OpenStream(tracker.KindWebSocket, reg.Now())
		}
		a.conns[c.ID()] = c
		a.stays[c.ID()] = i >= idle+busy
	}
	c := New(Config{Limits: Limits{Lameduck: 5 * time.Second, Closing: 25 * time.Second, Deadline: 30 * time.Second}}, reg, a)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); c.Run(ctx) }()
	c.Signal("SIGTERM")
	if during != nil {
		during(c)
	}
	<-c.Done()
	took := time.Since(a.start)
	cancel()
	<-ended
	for id := range a.conns {
		a.end(id, tracker.Cut)
	}
	return a, took
}

func TestDrains(t *testing.T) {
	tests := []struct {
		name                 string
		idle, busy, stubborn int
		during               func(c *Controller)
		from, to             time.Duration
	}{
		{"nothing open ends when lameduck is over", 0, 0, 0, nil, 5 * time.Second, 5200 * time.Millisecond},
		{"idle ones leave within a second or so", 20, 0, 0, nil, 5 * time.Second, 6500 * time.Millisecond},
		{"long-lived ones leave in the closing window", 5, 50, 0, nil, 25 * time.Second, 29500 * time.Millisecond},
		{"what stays is cut at the deadline", 0, 5, 1, nil, 30 * time.Second, 30300 * time.Millisecond},
		{"a doubled signal is one signal", 0, 0, 1, func(c *Controller) { time.Sleep(500 * time.Millisecond); c.Signal("SIGTERM") }, 30 * time.Second, 30300 * time.Millisecond},
		{"a second signal cuts", 0, 0, 1, func(c *Controller) { time.Sleep(2 * time.Second); c.Signal("SIGTERM") }, 2 * time.Second, 2300 * time.Millisecond},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, took := play(t, tt.idle, tt.busy, tt.stubborn, tt.during)
				if took < tt.from || took > tt.to {
					t.Errorf("done after %v, want between %v and %v; log %q", took, tt.from, tt.to, a.log)
				}
				if len(a.ends) != tt.busy {
					t.Errorf("polite ends: got %d, want %d", len(a.ends), tt.busy)
				}
				if n := len(a.ends); n > 10 && a.ends[n-1]-a.ends[0] < 2*time.Second {
					t.Errorf("polite ends lie within %v, want them spread over the window", a.ends[n-1]-a.ends[0])
				}
			})
		})
	}
}

func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, took := play(t, 0, 0, 1, func(c *Controller) {
			time.Sleep(6 * time.Second)
			if err := c.Cancel(); err != nil {
				t.Errorf("cancel: got %v, want none", err)
			}
			time.Sleep(time.Minute)
			if p := c.reg.Phase(); p != tracker.Serving {
				t.Errorf("phase: got %v, want %v", p, tracker.Serving)
			}
			if !c.Start("again") {
				t.Error("a drain after a cancelled one did not start")
			}
		})
		if took < 96*time.Second || took > 97*time.Second {
			t.Errorf("done after %v, want 96s: the second drain has its own deadline", took)
		}
	})
}
