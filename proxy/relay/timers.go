package relay

import "container/heap"

// timer is one deadline of a link. idx is its place in the heap, -1 while it is not armed.
type timer struct {
	when int64 // ns of the loop's clock
	idx  int
	fn   func()
}

// timers is a heap of deadlines, owned by a loop.
type timers []*timer

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].when < t[j].when }
func (t timers) Swap(i, j int)      { t[i], t[j] = t[j], t[i]; t[i].idx, t[j].idx = i, j }

// Push is heap's.
func (t *timers) Push(x any) {
	e, _ := x.(*timer)
	e.idx = len(*t)
	*t = append(*t, e)
}

// Pop is heap's.
func (t *timers) Pop() any {
	old := *t
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*t = old[:len(old)-1]
	e.idx = -1
	return e
}

func (t *timers) set(e *timer, when int64) {
	if e.idx >= 0 {
		e.when = when
		heap.Fix(t, e.idx)
		return
	}
	e.when = when
	heap.Push(t, e)
}

func (t *timers) stop(e *timer) {
	if e.idx >= 0 {
		heap.Remove(t, e.idx)
	}
}

// due takes the first timer that has run out, nil if there is none.
func (t *timers) due(now int64) *timer {
	if len(*t) == 0 || (*t)[0].when > now {
		return nil
	}
	e, _ := heap.Pop(t).(*timer)
	return e
}
