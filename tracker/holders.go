package tracker

// Connections calls f for every open connection: whether it has nothing in flight, and whether it carries a long-lived
// stream. f is called outside of locks.
func (r *Registry) Connections(f func(id uint64, idle, longLived bool)) {
	now := r.Now()
	buf := make([]snap, 0, chunkRecords)
	for _, s := range r.shards {
		walk(&s.mu, &s.conns, func(c *Conn) bool {
			buf = append(buf, snap{})
			c.copyTo(&buf[len(buf)-1], now)
			return true
		}, func() bool {
			for i := range buf {
				f(buf[i].conn, buf[i].open == 0, buf[i].longLived)
			}
			buf = buf[:0]
			return true
		})
	}
}
