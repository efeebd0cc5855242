// Package tlshello reads the ClientHello of a TLS connection that is passed through (RFC 8446 section 4.1.2, RFC 6066
// section 3, RFC 7301): server name, ALPN list and version. All that follows is opaque, and no farewell is possible.
package tlshello

import (
	"encoding/binary"
	"strings"

	"github.com/lastcall-proxy/lastcall/proxy/observe"
)

// maxHello bounds what is kept of a hello that came in pieces.
const maxHello = 16 << 10

// Reasons for losing track.
const (
	LostGarbage  = "tls_hello_garbage"
	LostTooLarge = "tls_hello_too_large"
)

// Observer watches one TLS connection.
type Observer struct {
	sink   observe.Sink
	stream observe.Stream
	head   [5]byte // of the record that is being read
	got    int     // bytes of it so far
	left   int     // bytes of the record still to come
	buf    []byte  // the message so far; nil once the hello is done with
	done   bool
}

// New makes an observer.
func New(sink observe.Sink) *Observer { return &Observer{sink: sink} }

// Data is observe.Observer's.
func (o *Observer) Data(dir observe.Direction, p []byte) []observe.Edit {
	if o.stream == nil {
		o.stream = o.sink.Begin(observe.TLS)
		o.sink.Protocol(observe.TLS)
		o.stream.State(observe.WaitingEither, observe.StageTunnel)
	}
	o.stream.Bytes(dir, len(p))
	if !o.done && dir == observe.FromClient {
		o.hello(p)
	}
	return nil
}

// hello takes the next bytes of the client's records. Each byte is copied once, so that a hello sent in tiny pieces costs no
// more than one sent whole.
func (o *Observer) hello(p []byte) {
	for len(p) > 0 && !o.done {
		if o.left == 0 {
			o.head[o.got] = p[0]
			o.got++
			p = p[1:]
			if !o.header() {
				o.lost(LostGarbage)
			}
			continue
		}
		n := min(len(p), o.left)
		o.left -= n
		o.message(p[:n])
		p = p[n:]
	}
}

// header checks a record's header (RFC 8446 section 5.1) as far as it came, and opens the record when it is whole.
func (o *Observer) header() bool {
	const handshake, major, maxRecord = 22, 3, 1 << 14
	switch o.got {
	case 1:
		return o.head[0] == handshake
	case 2:
		return o.head[1] == major
	case len(o.head):
		o.got, o.left = 0, int(binary.BigEndian.Uint16(o.head[3:]))
		return o.left > 0 && o.left <= maxRecord
	}
	return true
}

// message takes bytes from inside a record: the handshake message, of which records are no boundaries.
func (o *Observer) message(p []byte) {
	const clientHello, header = 1, 4
	o.buf = append(o.buf, p[:min(len(p), header+maxHello-len(o.buf))]...)
	if o.buf[0] != clientHello {
		o.lost(LostGarbage)
		return
	}
	if len(o.buf) < header {
		return
	}
	size := int(o.buf[1])<<16 | int(o.buf[2])<<8 | int(o.buf[3])
	if size > maxHello {
		o.lost(LostTooLarge)
		return
	}
	if len(o.buf) < header+size {
		return
	}
	h, ok := parse(o.buf[header : header+size])
	if !ok {
		o.lost(LostGarbage)
		return
	}
	o.done, o.buf = true, nil
	o.sink.Hello(h.sni, strings.Join(h.alpn, ","), h.version)
}

func (o *Observer) lost(reason string) {
	o.done, o.buf = true, nil
	o.sink.LostTrack(reason)
}

// EOF is observe.Observer's.
func (o *Observer) EOF(observe.Direction) []observe.Edit { return nil }

// Tell is observe.Observer's: there is nothing to say inside somebody else's TLS.
func (o *Observer) Tell(observe.Order) []observe.Edit { return nil }

// Idle is observe.Observer's.
func (o *Observer) Idle() bool { return o.stream == nil }

type hello struct {
	sni     string
	alpn    []string
	version string
}

// reader takes fields off a message; a short message makes it bad for good.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if r.bad || n > len(r.b) {
		r.bad = true
		return nil
	}
	p := r.b[:n]
	r.b = r.b[n:]
	return p
}

func (r *reader) num(size int) int {
	n := 0
	for _, c := range r.take(size) {
		n = n<<8 | int(c)
	}
	return n
}

func (r *reader) vector(size int) *reader { return &reader{b: r.take(r.num(size)), bad: r.bad} }

func parse(msg []byte) (h hello, ok bool) {
	r := &reader{b: msg}
	version := r.num(2)
	r.take(32)  // random
	r.vector(1) // session id
	r.vector(2) // cipher suites
	r.vector(1) // compression methods
	if r.bad {
		return h, false
	}
	if len(r.b) > 0 {
		exts := r.vector(2)
		for len(exts.b) > 0 && !exts.bad {
			kind := exts.num(2)
			body := exts.vector(2)
			switch kind {
			case 0: // server_name
				names := body.vector(2)
				for len(names.b) > 0 && !names.bad {
					t, name := names.num(1), names.vector(2)
					if t == 0 && h.sni == "" {
						h.sni = printable(name.b)
					}
				}
				r.bad = r.bad || names.bad
			case 16: // application_layer_protocol_negotiation
				list := body.vector(2)
				for len(list.b) > 0 && !list.bad {
					h.alpn = append(h.alpn, printable(list.vector(1).b))
				}
				r.bad = r.bad || list.bad
			case 43: // supported_versions
				list := body.vector(1)
				version = 0 // the legacy field means nothing beside this list (RFC 8446 section 4.2.1)
				for len(list.b) > 0 && !list.bad {
					if v := list.num(2); v > version && v <= 0x0304 { // above are drafts and GREASE (RFC 8701)
						version = v
					}
				}
				r.bad = r.bad || list.bad
			}
		}
		r.bad = r.bad || exts.bad
	}
	if r.bad {
		return hello{}, false
	}
	switch version {
	case 0x0301:
		h.version = "1.0"
	case 0x0302:
		h.version = "1.1"
	case 0x0303:
		h.version = "1.2"
	case 0x0304:
		h.version = "1.3"
	}
	return h, true
}

// printable keeps a record free of control bytes that a client put into a name.
func printable(b []byte) string {
	return strings.Map(func(c rune) rune {
		if c < 0x21 || c > 0x7e {
			return '?'
		}
		return c
	}, string(b[:min(len(b), 255)]))
}
