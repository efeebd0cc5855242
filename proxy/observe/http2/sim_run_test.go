package http2_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/lastcall-proxy/lastcall/proxy/observe"
)

var schedules = flag.Int("schedules", 1000, "random edit schedules to play")

// play runs one random schedule: two peers at work, their bytes cut anywhere, orders at any time.
func play(seed uint64, orders bool) (m *sim, err error) {
	m = newSim(seed)
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
			panic(fmt.Sprintf("seed %d: %v\n%s", seed, r, strings.Join(m.log, "\n")))
		}
	}()
	move := func(all bool) error {
		for _, dir := range []observe.Direction{observe.FromClient, observe.FromApp} {
			from := m.c
			if dir == observe.FromApp {
				from = m.s
			}
			for from.out.Len() > 0 {
				n := 1 + m.r.IntN(60)
				if m.r.IntN(3) == 0 {
					n = from.out.Len()
				}
				// The app must not be given what is above the last id that the client was told when it was given.
				m.limit = m.ours
				if err := m.relay(dir, n); err != nil {
					return err
				}
				if err := m.c.read(m); err != nil {
					return err
				}
				if err := m.s.read(m); err != nil {
					return err
				}
				if !all && m.r.IntN(3) == 0 {
					break
				}
			}
		}
		return nil
	}
	for i := range 60 {
		m.step()
		if orders && i > 3 && m.r.IntN(25) == 0 {
			m.tell([]observe.Order{observe.OrderFarewell, observe.OrderReject, observe.OrderServe, observe.OrderEnd}[m.r.IntN(4)])
		}
		if m.r.IntN(2) == 0 {
			if err := move(false); err != nil {
				return m, err
			}
		}
	}
	for range 5 {
		if err := move(true); err != nil {
			return m, err
		}
	}
	return m, m.check(orders)
}

// check compares the books of both peers once nothing is under way.
func (m *sim) check(orders bool) error {
	for _, e := range m.rec.Events {
		if strings.HasPrefix(e, "lost") || strings.HasPrefix(e, "broken") {
			return fmt.Errorf("observer: %s", e)
		}
	}
	for _, w := range []struct {
		from, to *peer
	}{{m.c, m.s}, {m.s, m.c}} {
		// What a sender believes to have left may be a little more than what it has: what we put in and did not pay yet.
		if debt := w.from.window - w.to.granted; debt != 0 {
			return fmt.Errorf("%s believes in a window of %d, %s granted %d", w.from.name, w.from.window, w.to.name, w.to.granted)
		}
	}
	if len(m.c.pings)+len(m.s.pings) > 0 {
		return fmt.Errorf("unanswered: client's %d, server's %d PINGs", len(m.c.pings), len(m.s.pings))
	}
	open := map[string]bool{}
	for _, e := range m.rec.Events {
		name, what, _ := strings.Cut(e, " ")
		if strings.HasPrefix(what, "begin") {
			open[name] = true
		} else if strings.HasPrefix(what, "done") {
			delete(open, name)
		}
	}
	for id, c := range m.c.streams { // every stream that is over at the client is over in the account
		s := m.s.streams[id]
		over := c.reset || c.local && c.remote || s != nil && s.reset
		if name := fmt.Sprintf("s%d", (id+1)/2); over && open[name] {
			return fmt.Errorf("stream %d is over, its record is not", id)
		}
	}
	return nil
}

func TestSchedules(t *testing.T) {
	first := rand.Uint64()
	for i := range uint64(*schedules) {
		seed := first + i
		if m, err := play(seed, i%4 != 0); err != nil {
			t.Fatalf("seed %d: %v\n%s\nevents:\n%s", seed, err, strings.Join(m.log, "\n"), strings.Join(m.rec.Events, "\n"))
		}
	}
}
