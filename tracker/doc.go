// Package tracker is the domain: the registry of open connections and streams, their records, the ring of those that
// ended, the counters, and what a drain needs to know of them. It knows no socket and no protocol, and it does not
// assume that a relay is its only source.
//
// One promise holds it together: opened == open + Σ fates, for connections and for streams, at every moment. Check
// proves it.
//
// A source of connections has a Shard to itself, per goroutine:
//
//	reg := tracker.New(tracker.Config{Shards: 1})
//	conn := reg.Shard(0).OpenConn(tracker.ConnFacts{Listener: "web", Client: "10.1.2.3:53122", App: "127.0.0.1:8080"})
//	conn.SetStage(tracker.StageIdle) // the app was reached
//	stream := conn.OpenStream(tracker.KindHTTP1, reg.Now())
//	stream.End(tracker.End{Fate: tracker.Completed, By: tracker.ByApp, How: tracker.HowProtocol})
//	conn.End(tracker.End{Fate: tracker.Completed, By: tracker.ByClient, How: tracker.HowFIN})
//
// Everybody else reads, from any goroutine: Counts, Query, Get, Drain, Report, Subscribe. Readers get copies, taken in
// short holds of a shard's lock; no code of theirs runs under it. The drain's owner moves the phases with BeginDrain and
// SetPhase; the tracker itself never decides that a drain begins or ends, closes nothing, and starts no goroutine.
//
// Memory is bounded: records of what ended are used again when they leave the ring, so a handle is not to be used after
// its End, and opening and ending a stream allocates nothing once the ring is full.
package tracker
