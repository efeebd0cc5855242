package tracker

import (
	"sync"
	"sync/atomic"
	"time"
)

// Defaults of Config.
const (
	DefaultLongLivedAfter    = 10 * time.Second
	DefaultRingRecords       = 10_000
	DefaultRingBytes         = 8 << 20
	DefaultOrdinaryPerSecond = 200
)

// Values of Config.OrdinaryPerSecond other than a rate.
const (
	OrdinaryAll  = -1
	OrdinaryNone = -2
)

// Config sets up a Registry. Its zero value is valid: one shard, the defaults above.
type Config struct {
	// Shards is one per event loop, at least 1.
	Shards int
	// LongLivedAfter is the age from which any stream counts as long-lived.
	LongLivedAfter time.Duration
	// RingRecords is how many ended records are kept, for connections and for streams each. The shards have equal shares:
	// what a shard has ended stays until that shard ended RingRecords/Shards more.
	RingRecords int
	// RingBytes bounds the memory of what is kept, for connections and for streams each. The oldest leave first.
	RingBytes int
	// Journal survives the process: nil for none. Left is what an earlier process left open in it; it is booked as Lost.
	Journal *Journal
	Left    Left
	// DropPaths keeps request paths out of records.
	DropPaths bool
	// OrdinaryPerSecond bounds how many ends of ordinary streams OnEnd gets per second; what is left out is counted in
	// Counts.OrdinaryOmitted. Ordinary is a stream that completed, was not long-lived and not late, with no drain running.
	// Zero is the default; OrdinaryAll and OrdinaryNone are what they say.
	OrdinaryPerSecond int
	// OnEnd is nil or gets a copy of each record that ended: all connections, all streams that are not ordinary, and a
	// bounded number of ordinary ones. It is called outside locks by the goroutine that owns the shard, keeps the copy if
	// it wants to, and must not block.
	OnEnd func(what What, rec *Record)
	// LinesDropped is nil or tells how many of OnEnd's records did not get into the fate log.
	LinesDropped func() uint64
	// Now is the time in nanoseconds since the epoch. By default the wall time of New plus monotonic progress.
	Now func() int64
	// Strict panics at what is a bug of the caller's: an end that CanOccur rules out, a stream opened on an ended
	// connection. Meant for tests; otherwise the first is booked as Failed and the second is told by Check.
	Strict bool
}

func (cfg Config) withDefaults() Config {
	cfg.Shards = max(cfg.Shards, 1)
	if cfg.LongLivedAfter <= 0 {
		cfg.LongLivedAfter = DefaultLongLivedAfter
	}
	if cfg.RingRecords <= 0 {
		cfg.RingRecords = DefaultRingRecords
	}
	if cfg.RingBytes <= 0 {
		cfg.RingBytes = DefaultRingBytes
	}
	if cfg.OrdinaryPerSecond == 0 {
		cfg.OrdinaryPerSecond = DefaultOrdinaryPerSecond
	}
	if cfg.Now == nil {
		start := time.Now()
		wall := start.UnixNano()
		cfg.Now = func() int64 { return wall + int64(time.Since(start)) }
	}
	return cfg
}

// Registry knows every connection and stream. Its methods may be called from any goroutine; those of a Shard, its Conns
// and Streams only from the goroutine that owns the shard.
type Registry struct {
	// Immutable.
	cfg     Config
	shards  []*Shard
	changed chan struct{}

	// Atomic.
	lastID       atomic.Uint64
	phase        atomic.Uint32
	survivorRoom atomic.Int64 // ends of survivors that may still be kept for the report
	events       hub

	reasons   reasons // has its own lock
	rehearsed rehearsed

	mu sync.Mutex
	// Guarded by mu. Locked before any shard's lock.
	drain drainFacts
}

// New makes a registry.
func New(cfg Config) *Registry {
	cfg = cfg.withDefaults()
	r := &Registry{cfg: cfg, changed: make(chan struct{}, 1)}
	r.shards = make([]*Shard, cfg.Shards)
	for i := range r.shards {
		r.shards[i] = newShard(r)
		r.shards[i].journal = cfg.Journal.table(i)
	}
	r.shards[0].bookLost(&cfg.Left)
	return r
}

// Now is the registry's clock: nanoseconds since the epoch.
func (r *Registry) Now() int64 { return r.cfg.Now() }

// Shard is the i-th shard, 0 <= i < Config.Shards.
func (r *Registry) Shard(i int) *Shard { return r.shards[i] }

// Shards is how many there are.
func (r *Registry) Shards() int { return len(r.shards) }

// Phase is where the drain is.
func (r *Registry) Phase() Phase { return Phase(r.phase.Load()) }

// signalChanged leaves a token for whoever waits on Changed.
func (r *Registry) signalChanged() {
	select {
	case r.changed <- struct{}{}:
	default: // one token is enough: the reader looks at Remaining
	}
}
