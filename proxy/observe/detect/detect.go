// Package detect chooses a connection's observer by the first bytes that its client sends: a TLS record, an HTTP/2 preface
// (RFC 9113 section 3.4), the first letter of an HTTP/1 method, or none of these. No byte waits for the choice.
package detect

import "github.com/lastcall-proxy/lastcall/proxy/observe"

// Protocol is what the first bytes look like.
type Protocol uint8

// Protocols.
const (
	Undecided Protocol = iota
	Opaque
	TLS
	HTTP1
	HTTP2
)

// preface is how far HTTP/2's differs from every HTTP/1 method: PROPFIND and its like part with it at the third letter.
const preface = "PRI "

// Of tells what a client's first bytes look like.
func Of(p []byte) Protocol {
	switch {
	case len(p) == 0:
		return Undecided
	case p[0] == 0x16:
		return TLS
	case len(p) >= len(preface) && string(p[:len(preface)]) == preface:
		return HTTP2
	case len(p) < len(preface) && string(p) == preface[:len(p)]:
		return Undecided
	case p[0] >= 'A' && p[0] <= 'Z' || p[0] >= 'a' && p[0] <= 'z' || p[0] == '\r' || p[0] == '\n':
		return HTTP1
	}
	return Opaque
}

// settings is the header of the SETTINGS frame with which an HTTP/2 server begins, often before its client has said
// anything: a length of few sixes, type 4, no flags, stream 0.
const settingsHeader = 9

// OfApp tells what a server's first bytes look like, when it speaks before its client.
func OfApp(p []byte) Protocol {
	want := [settingsHeader]byte{3: 4}
	for i, c := range p[:min(len(p), settingsHeader)] {
		if i != 2 && c != want[i] || i == 2 && c%6 != 0 {
			return Opaque
		}
	}
	if len(p) < settingsHeader {
		return Undecided
	}
	return HTTP2
}

// Observer stands in until there is enough to choose by, then for the one that was chosen.
type Observer struct {
	choose func(Protocol) observe.Observer
	inner  observe.Observer
	orders []observe.Order
	first  [2][settingsHeader]byte // by direction
	n      [2]int
	held   bool // the first bytes were taken away: late connections are not passed on unseen
	edit   [1]observe.Edit
}

// New makes an observer. choose is called once.
func New(choose func(Protocol) observe.Observer) *Observer { return &Observer{choose: choose} }

// Data is observe.Observer's.
func (o *Observer) Data(dir observe.Direction, p []byte) []observe.Edit {
	if o.inner != nil {
		return o.inner.Data(dir, p)
	}
	n := copy(o.first[dir][o.n[dir]:], p)
	look := Of
	if dir == observe.FromApp {
		look = OfApp
	}
	is := look(o.first[dir][:o.n[dir]+n])
	if is != Undecided {
		o.decide(is)
		return o.inner.Data(dir, p)
	}
	o.n[dir] += n
	if !o.held || dir == observe.FromApp {
		return nil
	}
	o.edit[0] = observe.Edit{Dir: dir, Drop: n}
	return o.edit[:]
}

// decide sets the observer up as if it had been there from the start. What it takes away of the first bytes is what was
// taken away already.
func (o *Observer) decide(is Protocol) {
	o.inner = o.choose(is)
	for _, order := range o.orders {
		o.inner.Tell(order)
	}
	for _, dir := range []observe.Direction{observe.FromApp, observe.FromClient} {
		if o.n[dir] > 0 {
			o.inner.Data(dir, o.first[dir][:o.n[dir]])
		}
	}
}

// EOF is observe.Observer's.
func (o *Observer) EOF(dir observe.Direction) []observe.Edit {
	if o.inner == nil && (o.n[dir] > 0 || dir == observe.FromApp) {
		is := HTTP1 // one to three letters
		if o.n[observe.FromApp] > 0 {
			is = Opaque
		}
		o.decide(is)
	}
	if o.inner == nil {
		return nil
	}
	return o.inner.EOF(dir)
}

// Tell is observe.Observer's.
func (o *Observer) Tell(order observe.Order) []observe.Edit {
	if o.inner != nil {
		return o.inner.Tell(order)
	}
	switch {
	case order == observe.OrderReject && o.n[observe.FromClient] == 0:
		o.held = true
	case order == observe.OrderServe:
		o.held = false
	}
	o.orders = append(o.orders, order)
	return nil
}

// Idle is observe.Observer's.
func (o *Observer) Idle() bool {
	if o.inner != nil {
		return o.inner.Idle()
	}
	return o.n[0] == 0 && o.n[1] == 0
}

// Close passes on that the connection is closed.
func (o *Observer) Close() {
	if c, ok := o.inner.(interface{ Close() }); ok {
		c.Close()
	}
}
