package tracker

import "sync"

// chunkRecords is how many records a reader visits per hold of a shard's lock. At some 100 ns each the owner of the shard
// waits 25 µs at worst.
const chunkRecords = 256

// node links a record into a list. A node without a record is a reader's mark.
type node[T any] struct {
	prev, next *node[T]
	rec        *T
}

// list is an intrusive list, oldest first. Records are in at most one list per node: open, then ring, then pool. The zero
// value is empty.
type list[T any] struct {
	root node[T]
	n    int // records, without marks
}

func (l *list[T]) pushBack(nd *node[T]) {
	if l.root.next == nil {
		l.root.next, l.root.prev = &l.root, &l.root
	}
	link(nd, l.root.prev)
	if nd.rec != nil {
		l.n++
	}
}

func (l *list[T]) remove(nd *node[T]) {
	unlink(nd)
	if nd.rec != nil {
		l.n--
	}
}

// front is the oldest record, or nil.
func (l *list[T]) front() *T {
	if l.n == 0 {
		return nil
	}
	nd := l.root.next
	for nd.rec == nil {
		nd = nd.next
	}
	return nd.rec
}

// popFront removes and returns the oldest record's node, or nil.
func (l *list[T]) popFront() *node[T] {
	if l.n == 0 {
		return nil
	}
	nd := l.root.next
	for nd.rec == nil {
		nd = nd.next
	}
	l.remove(nd)
	return nd
}

// each visits every record, oldest first. visit may not change the list.
func (l *list[T]) each(visit func(*T)) {
	if l.root.next == nil {
		return
	}
	for nd := l.root.next; nd != &l.root; nd = nd.next {
		if nd.rec != nil {
			visit(nd.rec)
		}
	}
}

func link[T any](nd, after *node[T]) {
	nd.prev, nd.next = after, after.next
	after.next.prev = nd
	after.next = nd
}

func unlink[T any](nd *node[T]) {
	nd.prev.next, nd.next.prev = nd.next, nd.prev
	nd.prev, nd.next = nil, nil
}

// walk visits the records of a list that mu guards, oldest first, in chunks of at most chunkRecords nodes per hold of mu;
// after each chunk it calls between, without the lock. Both return false to stop. visit runs under the lock: it copies and
// does nothing else. A mark keeps the place between two chunks, so that a record which stays in the list throughout is
// visited exactly once whatever is added and removed meanwhile.
func walk[T any](mu *sync.Mutex, l *list[T], visit func(*T) bool, between func() bool) {
	mark := &node[T]{}
	mu.Lock()
	if l.n == 0 {
		mu.Unlock()
		return
	}
	link(mark, &l.root)
	for {
		stop := false
		for range chunkRecords {
			nd := mark.next
			if nd == &l.root {
				stop = true
				break
			}
			unlink(mark)
			link(mark, nd)
			if nd.rec != nil && !visit(nd.rec) {
				stop = true
				break
			}
		}
		if stop {
			unlink(mark)
		}
		mu.Unlock()
		more := between == nil || between()
		if stop {
			return
		}
		mu.Lock()
		if !more {
			unlink(mark)
			mu.Unlock()
			return
		}
	}
}
