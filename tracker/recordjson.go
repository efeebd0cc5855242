package tracker

import (
	"encoding/json"
	"strconv"
	"unicode/utf8"
)

// AppendJSON appends the record as JSON. It is MarshalJSON without the detour through reflection.
func (r *Record) AppendJSON(b []byte) []byte {
	b = appendField(b, '{', "id", r.ID)
	b = appendField(b, ',', "conn", r.Conn)
	b = appendField(b, ',', "kind", r.Kind.String())
	b = appendField(b, ',', "direction", r.Direction.String())
	b = appendField(b, ',', "listener", r.Listener)
	b = appendField(b, ',', "client", r.Client)
	b = appendField(b, ',', "app", r.App)
	b = append(b, `,"peer":`...)
	b = appendField(b, '{', "user_agent", r.Peer.UserAgent)
	b = appendField(b, ',', "identity", r.Peer.Identity)
	b = appendField(b, ',', "sni", r.Peer.SNI)
	b = appendField(b, ',', "alpn", r.Peer.ALPN)
	b = appendField(b, ',', "class", r.Peer.Class.String())
	b = append(b, '}')
	b = appendField(b, ',', "method", r.Method)
	b = appendField(b, ',', "path", r.Path)
	b = appendField(b, ',', "authority", r.Authority)
	b = appendTime(b, "opened_at", r.OpenedAt)
	b = append(b, `,"age_s":`...)
	b = r.Age.append(b)
	b = append(b, `,"idle_s":{"client":`...)
	b = r.Idle.Client.append(b)
	b = append(b, `,"app":`...)
	b = r.Idle.App.append(b)
	b = append(b, '}')
	b = appendSides(b, "bytes", r.Bytes)
	if r.Messages != nil {
		b = appendSides(b, "messages", *r.Messages)
	}
	if r.Streams != nil {
		b = appendInt(b, "streams", int64(r.Streams.Open))
		b = appendInt(b, "streams_total", int64(r.Streams.Total))
	}
	b = appendField(b, ',', "status", r.Status)
	b = appendField(b, ',', "grpc_status", r.GRPCStatus)
	b = appendField(b, ',', "reset_code", r.ResetCode)
	b = appendInt(b, "close_code", int64(r.CloseCode))
	b = appendBool(b, "long_lived", r.LongLived)
	b = appendField(b, ',', "waiting_on", r.WaitingOn.String())
	half := ""
	if r.HalfClosed != ByUnknown {
		half = r.HalfClosed.String()
	}
	b = appendField(b, ',', "half_closed", half)
	b = appendSeconds(b, "half_closed_s", r.HalfClosedAgo)
	if r.Farewell != nil {
		b = r.Farewell.appendJSON(append(b, `,"farewell":`...))
	}
	if r.Late {
		b = appendBool(b, "late", true)
	}
	b = appendSeconds(b, "late_offset_s", r.LateOffset)
	if r.Survivor {
		b = appendBool(b, "survivor", true)
	}
	b = r.appendEnd(b)
	return append(b, '}')
}

// appendEnd: while a record is open, who and how are not unknown but not yet, so they are empty.
func (r *Record) appendEnd(b []byte) []byte {
	by, how := "", ""
	if r.Fate != FateOpen {
		by, how = r.By.String(), r.How.String()
	}
	b = appendField(b, ',', "fate", r.Fate.String())
	b = appendField(b, ',', "by", by)
	b = appendField(b, ',', "how", how)
	b = appendField(b, ',', "stage", r.Stage.String())
	b = appendField(b, ',', "reason", r.Reason)
	b = appendTime(b, "ended_at", r.EndedAt)
	return appendSeconds(b, "drain_offset_s", r.DrainOffset)
}

func (f *FarewellRecord) appendJSON(b []byte) []byte {
	b = append(b, `{"sent_at":"`...)
	b = append(f.SentAt.append(b), '"')
	b = appendField(b, ',', "kind", f.Kind.String())
	if f.Obeyed != nil {
		b = appendBool(b, "obeyed", *f.Obeyed)
	}
	b = appendInt(b, "began_after", int64(f.BeganAfter))
	return append(b, '}')
}

// MarshalJSON is AppendJSON.
func (r Record) MarshalJSON() ([]byte, error) { return r.AppendJSON(make([]byte, 0, 1024)), nil }

// UnmarshalJSON reads what MarshalJSON writes. Unknown fields are ignored: a newer sidecar may say more.
func (r *Record) UnmarshalJSON(b []byte) error {
	type plain Record // without this method
	var v struct {
		plain
		Open  *int `json:"streams"`
		Total *int `json:"streams_total"`
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return err
	}
	*r = Record(v.plain)
	r.What = WhatStream
	if r.Conn == "" {
		r.What = WhatConnection
	}
	if v.Open != nil && v.Total != nil {
		r.Streams = &ConnStreams{Open: *v.Open, Total: *v.Total}
	}
	return nil
}

func appendKey(b []byte, sep byte, key string) []byte {
	b = append(b, sep, '"')
	b = append(b, key...)
	return append(b, '"', ':')
}

func appendField(b []byte, sep byte, key, value string) []byte {
	return appendString(appendKey(b, sep, key), value)
}

func appendInt(b []byte, key string, v int64) []byte {
	return strconv.AppendInt(appendKey(b, ',', key), v, 10)
}

func appendBool(b []byte, key string, v bool) []byte {
	return strconv.AppendBool(appendKey(b, ',', key), v)
}

func appendTime(b []byte, key string, t Time) []byte {
	b = append(appendKey(b, ',', key), '"')
	return append(t.append(b), '"')
}

func appendSeconds(b []byte, key string, s *Seconds) []byte {
	if s == nil {
		return b
	}
	return s.append(appendKey(b, ',', key))
}

func appendSides(b []byte, key string, s Sides[int64]) []byte {
	b = append(appendKey(b, ',', key), `{"client":`...)
	b = strconv.AppendInt(b, s.Client, 10)
	b = append(b, `,"app":`...)
	return append(strconv.AppendInt(b, s.App, 10), '}')
}

// appendString writes a JSON string. Peers choose what is in records: bytes that are not UTF-8 become U+FFFD, and, as in
// encoding/json, <, >, & and the two line separators are escaped so that a page or a script may embed it.
func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if c >= 0x20 && c != '"' && c != '\\' && c != '<' && c != '>' && c != '&' {
				i++
				continue
			}
			b = append(b, s[from:i]...)
			if c == '"' || c == '\\' {
				b = append(b, '\\', c)
			} else {
				b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&0xf])
			}
			i++
			from = i
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			b = append(append(b, s[from:i]...), `\ufffd`...)
			from = i + n
		case r == '\u2028' || r == '\u2029':
			b = append(append(b, s[from:i]...), `\u202`...)
			b = append(b, hex[r&0xf])
			from = i + n
		}
		i += n
	}
	return append(append(b, s[from:]...), '"')
}
