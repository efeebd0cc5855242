package load

// ordinal numbers what a server sends by itself. Its own numbers are taken where they count its messages, so that gaps and
// doubles show; many servers have none, or such as mean something else (offsets, times): those messages are numbered as they
// come, and what is lost of them nobody sees.
type ordinal struct {
	begun   bool
	trusted bool // a step of one was seen
	counted bool // for good: the server's numbers are not used
	odd     bool // one step that was not one, before there was trust
	own     uint64
	last    uint64
}

// strange is a step that no loss explains.
const strange = 1 << 20

// of is the next message's number; has says whether the server gave it one of its own.
func (o *ordinal) of(own uint64, has bool) uint64 {
	if !o.begun {
		o.begun, o.counted = true, !has
		if has {
			o.own, o.last = own, own
		}
		return o.last
	}
	step := own - o.own
	o.own = own
	switch {
	case o.counted || !has || step > strange && -step > strange:
		o.counted = true
	case o.trusted || step == 1:
		o.trusted = true
		o.last = own
		return own
	case o.odd: // the second: these are no ordinals
		o.counted = true
	default: // the next step tells: until then nothing is amiss, and if this one is, it shows in the next number
		o.odd = true
	}
	o.last++
	return o.last
}
