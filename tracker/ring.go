package tracker

// ring keeps the records that ended last, bounded by number and by bytes; the oldest leave first.
type ring[T any] struct {
	list[T]
	maxRecords, maxBytes int // immutable
	bytes                int
}

func (r *ring[T]) push(nd *node[T], size int) {
	r.pushBack(nd)
	r.bytes += size
}

func (r *ring[T]) over() bool { return r.n > r.maxRecords || (r.bytes > r.maxBytes && r.n > 0) }

// pop takes the oldest out. size must give what push was told: a record in the ring does not change.
func (r *ring[T]) pop(size func(*T) int) *T {
	nd := r.popFront()
	r.bytes -= size(nd.rec)
	return nd.rec
}
