package rehearse

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastcall-proxy/lastcall/tracker"
	"github.com/lastcall-proxy/lastcall/tracker/trackertest"
)

// stage is an Actor that keeps what it was told, with the time since the beginning.
type stage struct {
	mu       sync.Mutex
	start    time.Time
	did      []deed
	held     map[uint64]bool
	refusing bool
}

type deed struct {
	what string
	id   uint64
	at   time.Duration
}

func (s *stage) do(what string, ids []uint64) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		s.did = append(s.did, deed{what, id, time.Since(s.start)})
		switch what {
		case "hold":
			s.held[id] = true
		case "release":
			delete(s.held, id)
		}
	}
	return len(ids)
}

func (s *stage) Kick(ids []uint64, polite bool) int {
	if polite {
		return s.do("end", ids)
	}
	return s.do("reset", ids)
}
func (s *stage) Part(ids []uint64) int    { return s.do("part", ids) }
func (s *stage) Hold(ids []uint64) int    { return s.do("hold", ids) }
func (s *stage) Release(ids []uint64) int { return s.do("release", ids) }
func (s *stage) Held() int                { s.mu.Lock(); defer s.mu.Unlock(); return len(s.held) }
func (s *stage) refuses() bool            { s.mu.Lock(); defer s.mu.Unlock(); return s.refusing }
func (s *stage) RefuseNew(on bool)        { s.mu.Lock(); defer s.mu.Unlock(); s.refusing = on }

func (s *stage) deeds(what string) (out []deed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.did {
		if d.what == what {
			out = append(out, d)
		}
	}
	return out
}

func set(t *testing.T) (*Controller, *stage, *tracker.Registry) {
	t.Helper()
	reg := trackertest.New(t, tracker.Config{Shards: 1})
	s := &stage{start: time.Now(), held: map[uint64]bool{}}
	c := New(reg, s)
	t.Cleanup(c.Close)
	return c, s, reg
}

func TestPacedSilencesEndOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s, _ := set(t)
		ids := []uint64{4, 2, 9, 7}
		if _, err := c.Start(Plan{Mode: HalfOpen, Connections: ids, Over: 4 * time.Second, Hold: 10 * time.Second}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Start(Plan{Mode: Reset, Connections: ids}); !errors.Is(err, ErrRunning) {
			t.Errorf("a second one: %v", err)
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		for i, id := range ids {
			at := time.Duration(i) * time.Second
			if got := s.deeds("hold")[i]; got != (deed{"hold", id, at}) {
				t.Errorf("hold %d: got %+v, want %d at %v", i, got, id, at)
			}
			if got := s.deeds("release")[i]; got != (deed{"release", id, at + 10*time.Second}) {
				t.Errorf("release %d: got %+v", i, got)
			}
		}
		if st := c.State(); st.Status != Over || st.Taken != 4 || st.Held != 0 || st.Until.Sub(st.Started) != 14*time.Second {
			t.Errorf("state: %+v", st)
		}
	})
}

func TestEachModeDoesItsOwn(t *testing.T) {
	for mode, what := range map[Mode]string{Polite: "end", GoAway: "part", Reset: "reset", RefuseNew: "end"} {
		t.Run(string(mode), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, s, _ := set(t)
				p := Plan{Mode: mode, Connections: []uint64{1, 2}}
				if mode == RefuseNew {
					p.Hold = 3 * time.Second
				}
				if _, err := c.Start(p); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if got := s.deeds(what); len(got) != 2 || got[1].at != 0 {
					t.Errorf("got %+v", got)
				}
				if got := s.refuses(); got != (mode == RefuseNew) {
					t.Errorf("refusing: %v", got)
				}
				time.Sleep(4 * time.Second)
				synctest.Wait()
				if st := c.State(); st.Status != Over || s.refuses() {
					t.Errorf("state %+v, refusing %v", st, s.refuses())
				}
			})
		})
	}
}

func TestCancelAndDrainUndo(t *testing.T) {
	for _, by := range []string{"cancel", "drain"} {
		t.Run(by, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, s, reg := set(t)
				if _, err := c.Start(Plan{Mode: HalfOpen, Connections: []uint64{1, 2, 3}, Over: 30 * time.Second, Hold: time.Minute}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(15 * time.Second)
				if n := s.Held(); n != 2 {
					t.Errorf("held: got %d, want 2", n)
				}
				if by == "cancel" {
					if err := c.Cancel("enough"); err != nil {
						t.Error(err)
					}
				} else {
					reg.BeginDrain("test", reg.Now(), reg.Now()+1e9)
					time.Sleep(2 * tick)
				}
				synctest.Wait()
				if st := c.State(); st.Status != Cancelled || st.Reason == "" || s.Held() != 0 {
					t.Errorf("state %+v, held %d", st, s.Held())
				}
				if err := c.Cancel("again"); !errors.Is(err, ErrNotRunning) {
					t.Errorf("a second cancel: %v", err)
				}
				if by == "drain" {
					if _, err := c.Start(Plan{Mode: Reset, Connections: []uint64{1}}); !errors.Is(err, ErrDraining) {
						t.Errorf("while draining: %v", err)
					}
					reg.CancelDrain()
				}
				time.Sleep(2 * time.Minute)
				if n := len(s.deeds("hold")); n != 2 {
					t.Errorf("held after the end: %d", n)
				}
			})
		})
	}
}

func TestBadPlans(t *testing.T) {
	one := []uint64{1}
	for _, tt := range []struct {
		field string
		p     Plan
	}{
		{"mode", Plan{Mode: "rude", Connections: one}},
		{"connections", Plan{Mode: Reset}},
		{"connections", Plan{Mode: Reset, Connections: slices.Repeat(one, MaxConnections+1)}},
		{"over_s", Plan{Mode: Reset, Connections: one, Over: -1}},
		{"hold_s", Plan{Mode: Reset, Connections: one, Hold: 1}},
		{"hold_s", Plan{Mode: HalfOpen, Connections: one}},
		{"hold_s", Plan{Mode: RefuseNew, Connections: one, Hold: MaxHold + 1}},
	} {
		c, _, _ := set(t)
		_, err := c.Start(tt.p)
		var bad *PlanError
		if !errors.As(err, &bad) || bad.Field != tt.field {
			t.Errorf("%+v: got %v, want one that names %s", tt.p.Mode, err, tt.field)
		}
	}
}
