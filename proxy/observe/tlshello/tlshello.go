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
	buf    []byte // records so far; nil once the hello is done with
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

func (o *Observer) hello(p []byte) {
	// Bytes past the bound are not needed: a longer hello is given up.
	o.buf = append(o.buf, p[:min(len(p), maxHello-len(o.buf))]...)
	msg, whole, ok := handshake(o.buf)
	switch {
	case !ok:
		o.lost(LostGarbage)
	case whole:
		o.done, o.buf = true, nil
		h, ok := parse(msg)
		if !ok {
			o.sink.LostTrack(LostGarbage)
			return
		}
		o.sink.Hello(h.sni, strings.Join(h.alpn, ","), h.version)
	case len(o.buf) >= maxHello:
		o.lost(LostTooLarge)
	}
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

// handshake joins the handshake message that the records in b carry. ok is false when b is no such thing; whole says that
// the message is complete.
func handshake(b []byte) (msg []byte, whole, ok bool) {
	const header, handshakeRecord, clientHello = 5, 22, 1
	for len(b) > 0 {
		if b[0] != handshakeRecord || (len(b) > 1 && b[1] != 3) {
			return nil, false, false
		}
		if len(b) < header {
			return nil, false, true
		}
		n := int(binary.BigEndian.Uint16(b[3:]))
		if n == 0 || n > maxHello {
			return nil, false, false
		}
		part := b[header:min(len(b), header+n)]
		msg = append(msg, part...)
		if len(msg) > 0 && msg[0] != clientHello {
			return nil, false, false
		}
		if len(msg) >= 4 {
			size := int(msg[1])<<16 | int(msg[2])<<8 | int(msg[3])
			if size > maxHello {
				return nil, false, false
			}
			if len(msg) >= 4+size {
				return msg[4 : 4+size], true, true
			}
		}
		b = b[header+len(part):]
		if len(part) < n {
			break
		}
	}
	return nil, false, true
}

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
				for len(list.b) > 0 && !list.bad {
					if v := list.num(2); v&0x0f0f != 0x0a0a && v > version && v <= 0x0304 { // not GREASE (RFC 8701)
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
