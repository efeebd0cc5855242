package tracker

// Matches says whether a record, such as an event's, is one that the query selects. Order, limit and cursor have no part
// in it, nor has StateAny or StateOpen: an event's record may be either.
func (q *Query) Matches(r *Record) bool {
	silent := min(r.Idle.Client, r.Idle.App)
	switch {
	case q.What != r.What,
		q.Kind != nil && *q.Kind != r.Kind,
		q.Direction != nil && *q.Direction != r.Direction,
		q.WaitingOn != nil && *q.WaitingOn != r.WaitingOn,
		q.Fate != FateOpen && q.Fate != r.Fate,
		q.State == StateClosed && r.Fate == FateOpen,
		q.State == StateSurvivors && (!r.Survivor || r.Peer.Class != ClassNormal),
		float64(r.Age) < q.Older.Seconds(),
		float64(silent) < q.Idle.Seconds():
		return false
	}
	return true
}
