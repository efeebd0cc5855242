package http1

import "github.com/lastcall-proxy/lastcall/proxy/observe"

// forward puts the client's address in front of the empty line that ends a request's head (RFC 7239, and the older
// X-Forwarded-For). Behind all that the client has sent is the only right place: whoever reads the lines as one list trusts
// its end. A CR that may be the first half of that line is held back until the next byte tells.
func (o *Observer) forward(m *message, p []byte, i int) {
	if len(o.opt.Forwarded) == 0 || m.state != stHeader || o.holding || o.replay {
		return
	}
	put := func(drop int, b ...byte) {
		o.edits = append(o.edits, observe.Edit{Dir: observe.FromClient, Off: i, Drop: drop, Insert: b})
	}
	switch {
	case o.cr: // its line goes on
		o.cr = false
		if p[i] == '\n' {
			put(0, append(o.opt.Forwarded[:len(o.opt.Forwarded):len(o.opt.Forwarded)], '\r')...)
		} else {
			put(0, '\r')
		}
	case len(m.line) > 0:
	case p[i] == '\n', p[i] == '\r' && i+1 < len(p) && p[i+1] == '\n':
		put(0, o.opt.Forwarded...)
	case p[i] == '\r' && i+1 == len(p):
		o.cr = true
		put(1)
	}
}

// giveBack lets a CR go whose line will not be read to its end.
func (o *Observer) giveBack() {
	if o.cr {
		o.cr = false
		o.edits = append(o.edits, observe.Edit{Dir: observe.FromClient, Insert: []byte{'\r'}})
	}
}
