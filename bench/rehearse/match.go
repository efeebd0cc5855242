package rehearse

import (
	"cmp"
	"slices"
	"time"
)

// client is one whose stream is taken.
type client struct {
	key, kind string
	from      record    // the stream that is taken
	taken     time.Time // when it was ended, told or silenced
	left      time.Time // when its old connection was over; zero: it still is open
	attempts  []record  // in order, up to the one that succeeded
	back      *record   // the one that succeeded
}

// key tells clients apart: by what names them (a certificate's SAN or the configured header) or their address, and by what
// they asked for, since one client may hold several streams. An opaque stream has an address only.
//
// After a GOAWAY the old stream runs on, and what a client begins elsewhere may be anything: there the path says nothing.
func (p *Plan) key(r *record) string {
	by, who := p.Identity, r.ip
	if by != "ip" && by != "ip-path" && r.identity != "" {
		who = "=" + r.identity
	}
	if by == "identity" && r.identity == "" {
		return ""
	}
	if by == "ip" || p.Mode == "goaway" {
		return who
	}
	return who + " " + r.path
}

// pick takes whole connections, in random order, until the share of the streams is reached; the last may not exceed it,
// but one is taken at least. The connections' other streams go with them.
func pick(open []record, p *Plan, shuffle func(n int, swap func(i, j int))) (conns []string, streams []record, of, others int) {
	byConn := map[string][]record{}
	var order []string
	for _, r := range open {
		if !r.normal {
			continue
		}
		if !slices.Contains(p.Kinds, r.kind) {
			others++
			continue
		}
		of++
		if byConn[r.conn] == nil {
			order = append(order, r.conn)
		}
		byConn[r.conn] = append(byConn[r.conn], r)
	}
	shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	most := int(p.Share*float64(of) + 1e-9)
	for _, c := range order {
		if len(streams) > 0 && len(streams)+len(byConn[c]) > most {
			continue
		}
		conns = append(conns, c)
		streams = append(streams, byConn[c]...)
	}
	return conns, streams, of, others
}

// slack is how much earlier than its own end a client's next attempt may be booked: records are stamped by batch.
const slack = 5 * time.Millisecond

// match gives each client its attempts: streams of its key that begin after it was taken, on another connection. Where
// several clients share a key, an attempt goes to the one that has been quiet for longest, so that clients of one habit are
// told by it; shared says that this happened.
func (p *Plan) match(clients []*client, seen []record) (shared bool) {
	waiting := map[string][]*client{}
	own := map[string]bool{} // connections that were taken
	for _, c := range clients {
		own[c.from.sidecar+" "+c.from.conn] = true
		waiting[c.key] = append(waiting[c.key], c)
	}
	for _, w := range waiting {
		slices.SortStableFunc(w, func(a, b *client) int { return a.taken.Compare(b.taken) })
		shared = shared || len(w) > 1
	}
	slices.SortStableFunc(seen, func(a, b record) int { return cmp.Compare(a.opened.UnixNano(), b.opened.UnixNano()) })
	for i := range seen {
		r := &seen[i]
		if own[r.sidecar+" "+r.conn] || !r.normal {
			continue
		}
		key := p.key(r)
		queue := waiting[key]
		for k, c := range queue {
			if r.opened.Before(c.taken.Add(-slack)) || !p.attempt(c, r) {
				continue
			}
			c.attempts = append(c.attempts, *r)
			if k == 0 {
				queue = queue[1:]
			} else {
				queue = slices.Delete(queue, k, k+1)
			}
			if p.succeeded(c, r) {
				c.back = r
			} else {
				queue = append(queue, c)
			}
			waiting[key] = queue
			break
		}
	}
	return shared
}

// attempt tells whether a record may be a try of the client's. A handshake that failed never got further than http1.
func (p *Plan) attempt(c *client, r *record) bool {
	if p.Mode == "goaway" { // what runs on an older connection is none of its doing
		return r.stream && r.kind != "tcp" && r.kind != "tls" && (r.dialled.IsZero() || r.dialled.After(c.taken.Add(-slack)))
	}
	opaque := c.kind == "tcp" || c.kind == "tls"
	if !r.stream { // a connection that was refused before it said anything
		return opaque && r.fate == "rejected"
	}
	return r.kind == c.kind || r.kind == "http1" && (c.kind == "websocket" || c.kind == "sse" || c.kind == "tunnel") || r.kind == "http2" && c.kind != "tcp" && c.kind != "tls"
}

func (p *Plan) succeeded(c *client, r *record) bool {
	if !r.stream || r.kind != c.kind && p.Mode != "goaway" || r.fate == "rejected" || r.fate == "unreachable" || r.fate == "failed" {
		return false
	}
	return len(r.status) == 0 || r.status[0] < '4'
}
