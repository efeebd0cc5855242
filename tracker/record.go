package tracker

import (
	"math"
	"strconv"
	"time"
)

// Time is nanoseconds since the epoch. Its text is RFC 3339 in UTC with microseconds; zero, which means "not yet" or
// "never", is the empty text.
type Time int64

const timeLayout = "2006-01-02T15:04:05.000000Z07:00"

// Time converts.
func (t Time) Time() time.Time { return time.Unix(0, int64(t)).UTC() }

func (t Time) String() string { return string(t.append(nil)) }

func (t Time) append(b []byte) []byte {
	if t == 0 {
		return b
	}
	return t.Time().AppendFormat(b, timeLayout)
}

// MarshalText gives the text.
func (t Time) MarshalText() ([]byte, error) { return t.append([]byte{}), nil }

// UnmarshalText takes RFC 3339 or the empty text.
func (t *Time) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		*t = 0
		return nil
	}
	v, err := time.Parse(time.RFC3339Nano, string(b))
	if err != nil {
		return err
	}
	*t = Time(v.UnixNano())
	return nil
}

// Seconds is a duration in seconds, written with at most microseconds.
type Seconds float64

// Duration converts.
func (s Seconds) Duration() time.Duration { return time.Duration(math.Round(float64(s) * 1e9)) }

// MarshalJSON writes a number.
func (s Seconds) MarshalJSON() ([]byte, error) { return s.append(nil), nil }

func (s Seconds) append(b []byte) []byte {
	f := math.Round(float64(s)*1e6) / 1e6
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return append(b, "null"...)
	}
	return strconv.AppendFloat(b, f, 'f', -1, 64)
}

func secondsOf(ns int64) Seconds { return Seconds(float64(ns) / 1e9) }

// Record is a copy of what is known of a connection or stream. Its JSON form is the one of the API and of the fate log
// alike. What was not observed is absent or empty: Messages of a kind that has none, the fields of the end while it is
// open, Farewell if none was given.
type Record struct {
	What          What            `json:"-"`
	ID            string          `json:"id"`   // "c42", "c42.7"
	Conn          string          `json:"conn"` // a stream's connection; empty for a connection
	Kind          Kind            `json:"kind"`
	Direction     Direction       `json:"direction"`
	Listener      string          `json:"listener"`
	Client        string          `json:"client"`
	App           string          `json:"app"`
	Peer          Peer            `json:"peer"`
	Method        string          `json:"method"`
	Path          string          `json:"path"`
	Authority     string          `json:"authority"`
	OpenedAt      Time            `json:"opened_at"`
	Age           Seconds         `json:"age_s"`  // now, or at its end
	Idle          Sides[Seconds]  `json:"idle_s"` // since the side sent last, or since the begin; now, or at its end
	Bytes         Sides[int64]    `json:"bytes"`
	Messages      *Sides[int64]   `json:"messages,omitempty"`
	Status        string          `json:"status"`
	GRPCStatus    string          `json:"grpc_status"`
	ResetCode     string          `json:"reset_code"`
	CloseCode     int             `json:"close_code"`
	LongLived     bool            `json:"long_lived"`
	WaitingOn     WaitingOn       `json:"waiting_on"`
	HalfClosed    Party           `json:"half_closed"` // who sent FIN; "" if nobody
	HalfClosedAgo *Seconds        `json:"half_closed_s,omitempty"`
	Farewell      *FarewellRecord `json:"farewell,omitempty"`
	Streams       *ConnStreams    `json:"-"` // of a connection; "streams" and "streams_total"
	Late          bool            `json:"late,omitempty"`
	LateOffset    *Seconds        `json:"late_offset_s,omitempty"` // after the drain began
	Survivor      bool            `json:"survivor,omitempty"`
	Fate          Fate            `json:"fate"`
	By            Party           `json:"by"`
	How           How             `json:"how"`
	Stage         Stage           `json:"stage"`
	Reason        string          `json:"reason"`
	EndedAt       Time            `json:"ended_at"`
	DrainOffset   *Seconds        `json:"drain_offset_s,omitempty"` // of the end, after the drain began
}

// Peer is what is known of the client.
type Peer struct {
	UserAgent string `json:"user_agent"`
	Identity  string `json:"identity"`
	SNI       string `json:"sni"`
	ALPN      string `json:"alpn"`
	Class     Class  `json:"class"`
}

// ConnStreams counts a connection's streams.
type ConnStreams struct {
	Open  int
	Total int
}

// FarewellRecord is the goodbye that we gave to a connection.
type FarewellRecord struct {
	SentAt Time         `json:"sent_at"`
	Kind   FarewellKind `json:"kind"`
	// Obeyed is absent while that is open: a connection obeyed if it left by itself and began no stream after it was told;
	// a stream that was told of it obeyed if it came to its own end.
	Obeyed     *bool  `json:"obeyed,omitempty"`
	BeganAfter uint32 `json:"began_after"` // streams that the connection began after it was told
}

// record makes a Record of a copy; now is for what is still open. Called without locks.
func (sn *snap) record(now int64) Record {
	if sn.ended != 0 {
		now = sn.ended
	}
	r := Record{
		What: sn.what, ID: "c" + strconv.FormatUint(sn.conn, 10),
		Kind: sn.kind, Direction: sn.dir,
		Listener: sn.facts.listener, Client: sn.facts.client, App: sn.facts.app,
		Peer:      Peer{SNI: sn.facts.sni, ALPN: sn.facts.alpn, Class: sn.class},
		OpenedAt:  Time(sn.opened),
		Age:       since(now, sn.opened),
		Idle:      Sides[Seconds]{Client: since(now, sn.last[0]), App: since(now, sn.last[1])},
		Bytes:     Sides[int64]{Client: sn.bytes[0], App: sn.bytes[1]},
		ResetCode: sn.resetCode, CloseCode: sn.closeCode,
		LongLived: sn.longLived, WaitingOn: sn.waiting, HalfClosed: sn.halfBy,
		Late: sn.late, Survivor: sn.survivor,
		Fate: sn.fate, By: sn.by, How: sn.how, Stage: sn.stage, Reason: sn.reason, EndedAt: Time(sn.ended),
	}
	if sn.what == WhatStream {
		r.Conn = r.ID
		r.ID += "." + strconv.FormatUint(uint64(sn.n), 10)
		switch sn.kind {
		case KindGRPC, KindWebSocket, KindSSE:
			r.Messages = &Sides[int64]{Client: sn.messages[0], App: sn.messages[1]}
		case KindHTTP1, KindHTTP2, KindTunnel, KindTCP, KindTLS: // no messages that anyone could count
		}
	} else {
		r.Streams = &ConnStreams{Open: sn.open, Total: sn.total}
	}
	r.Method, r.Path, r.Authority, r.Peer.UserAgent, r.Peer.Identity = sn.words()
	if sn.status != 0 {
		r.Status = strconv.Itoa(int(sn.status))
	}
	if sn.grpcStatus != 0 {
		r.GRPCStatus = strconv.Itoa(int(sn.grpcStatus) - 1)
	}
	if sn.halfBy != ByUnknown {
		r.HalfClosedAgo = new(since(now, sn.halfAt))
	}
	if sn.farewell != FarewellNone {
		r.Farewell = &FarewellRecord{SentAt: Time(sn.toldAt), Kind: sn.farewell, BeganAfter: sn.began}
		if sn.obeyed != unknown {
			r.Farewell.Obeyed = new(sn.obeyed == yes)
		}
	}
	if sn.late {
		r.LateOffset = new(since(sn.opened, sn.drainAt))
	}
	if sn.ended != 0 && sn.drainAt != 0 {
		r.DrainOffset = new(since(sn.ended, sn.drainAt))
	}
	return r
}

// since is never negative: two clock readings of different goroutines may cross.
func since(now, then int64) Seconds { return secondsOf(max(now-then, 0)) }
