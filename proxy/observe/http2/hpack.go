package http2

import (
	"bytes"
	"errors"

	"golang.org/x/net/http2/hpack"
)

// Errors of a header block. Any of them means that the table is out of step for good.
var (
	errBlock     = errors.New("http2: malformed header block")
	errTableSize = errors.New("http2: header table larger than it may be")
)

const (
	defaultTable = 4096     // RFC 9113 section 6.5.2
	maxTable     = 64 << 10 // what a peer may make us keep, whatever the other peer allows it
	maxListSize  = 64 << 10 // of a block's fields, as SETTINGS_MAX_HEADER_LIST_SIZE counts them
	entryCost    = 32       // RFC 7541 section 4.1
)

// table is a dynamic table (RFC 7541 section 2.3.2). Its entries' bytes lie one behind the other in one buffer, oldest
// first: 4 KiB of table take 4 KiB and not four times as much.
type table struct {
	buf     []byte
	from    int // where the oldest entry's bytes begin
	entries []entry
	first   int // the oldest entry
	size    uint32
	max     uint32
}

type entry struct{ name, value uint32 } // lengths

func (t *table) len() int { return len(t.entries) - t.first }

// evict makes room for n.
func (t *table) evict(n uint32) {
	for t.size+n > t.max && t.first < len(t.entries) {
		e := t.entries[t.first]
		t.first++
		t.from += int(e.name + e.value)
		t.size -= e.name + e.value + entryCost
	}
	if t.first == len(t.entries) {
		t.buf, t.entries, t.from, t.first = t.buf[:0], t.entries[:0], 0, 0
	}
}

func (t *table) add(name, value []byte) {
	n := uint32(len(name) + len(value))
	t.evict(n + entryCost)
	if n+entryCost > t.max {
		return // RFC 7541 section 4.4: an entry that is too large empties the table
	}
	if need := len(t.buf) + int(n); need > cap(t.buf) {
		held := len(t.buf) - t.from
		next := t.buf[:0]
		if held+int(n) > cap(t.buf) {
			next = make([]byte, 0, min(max(2*(held+int(n)), 256), int(t.max)))
		}
		t.buf, t.from = append(next, t.buf[t.from:]...), 0 // copies downwards: append moves like memmove
	}
	if len(t.entries) == cap(t.entries) && t.first > 0 {
		t.entries, t.first = append(t.entries[:0], t.entries[t.first:]...), 0
	}
	t.buf = append(append(t.buf, name...), value...)
	t.entries = append(t.entries, entry{uint32(len(name)), uint32(len(value))})
	t.size += n + entryCost
}

// at gives entry i, 0 being the newest one. The slices are valid until the next add.
func (t *table) at(i int) (name, value []byte) {
	end := len(t.buf)
	k := len(t.entries) - 1
	for ; i > 0; i-- {
		end -= int(t.entries[k].name + t.entries[k].value)
		k--
	}
	e := t.entries[k]
	start := end - int(e.name+e.value)
	return t.buf[start : start+int(e.name)], t.buf[start+int(e.name) : end]
}

// decoder is one flow's HPACK state.
type decoder struct {
	table   table
	allowed uint32 // what the table's size may be set to
	begun   bool
}

// scratch is what decoding needs for a moment; one for all connections of a goroutine.
type scratch struct {
	name, value bytes.Buffer
	head        head
}

// decode reads a block into h. The fields' names and values are valid during h.add only.
func (d *decoder) decode(p []byte, sc *scratch, h *head) error {
	if !d.begun {
		d.begun, d.table.max = true, defaultTable
		d.allowed = max(d.allowed, defaultTable)
	}
	for len(p) > 0 {
		c := p[0]
		switch {
		case c&0x80 != 0: // indexed
			i, rest, ok := integer(p, 7)
			if !ok {
				return errBlock
			}
			name, value, ok := d.field(i)
			if !ok {
				return errBlock
			}
			h.add(name, value, false)
			p = rest
		case c&0xe0 == 0x20: // size update; one behind a field is wrong, but it is for the receiver to say so
			n, rest, ok := integer(p, 5)
			if !ok {
				return errBlock
			}
			if n > d.allowed || n > maxTable {
				return errTableSize
			}
			d.table.max = n
			d.table.evict(0)
			p = rest
		default:
			bits := 4
			if c&0x40 != 0 {
				bits = 6
			}
			i, rest, ok := integer(p, bits)
			if !ok {
				return errBlock
			}
			var name []byte
			if i > 0 {
				if name, _, ok = d.field(i); !ok {
					return errBlock
				}
				if bits == 6 && i > uint32(len(static)) { // adding may move what name points at
					sc.name.Reset()
					sc.name.Write(name)
					name = sc.name.Bytes()
				}
			} else if name, rest, ok = text(rest, &sc.name); !ok {
				return errBlock
			}
			if bits == 4 && !h.keep && !h.wanted(name) { // nobody will read it: no need to decode it
				n, after, ok := stringLength(rest)
				if !ok || uint64(n) > uint64(len(after)) {
					return errBlock
				}
				h.size += len(name) + int(n) + entryCost
				p = after[n:]
				continue
			}
			value, rest, ok := text(rest, &sc.value)
			if !ok {
				return errBlock
			}
			h.add(name, value, c&0xf0 == 0x10)
			if bits == 6 {
				d.table.add(name, value)
			}
			p = rest
		}
	}
	return nil
}

func (d *decoder) field(i uint32) (name, value []byte, ok bool) {
	switch {
	case i == 0:
		return nil, nil, false
	case i <= uint32(len(static)):
		f := &static[i-1]
		return f.name, f.value, true
	case i-uint32(len(static)) <= uint32(d.table.len()):
		name, value = d.table.at(int(i) - len(static) - 1)
		return name, value, true
	}
	return nil, nil, false
}

// integer reads a prefixed integer (RFC 7541 section 5.1). More than 28 bits behind the prefix are refused.
func integer(p []byte, bits int) (v uint32, rest []byte, ok bool) {
	mask := byte(1<<bits - 1)
	v = uint32(p[0] & mask)
	p = p[1:]
	if v < uint32(mask) {
		return v, p, true
	}
	for shift := 0; shift < 28 && len(p) > 0; shift += 7 {
		c := p[0]
		p = p[1:]
		v += uint32(c&0x7f) << shift
		if c&0x80 == 0 {
			return v, p, true
		}
	}
	return 0, nil, false
}

// stringLength reads a string's length.
func stringLength(p []byte) (v uint32, rest []byte, ok bool) {
	if len(p) == 0 {
		return 0, nil, false
	}
	return integer(p, 7)
}

// text reads a string (RFC 7541 section 5.2); buf takes what has to be decoded.
func text(p []byte, buf *bytes.Buffer) (s, rest []byte, ok bool) {
	if len(p) == 0 {
		return nil, nil, false
	}
	huffman := p[0]&0x80 != 0
	n, p, ok := stringLength(p)
	if !ok || uint64(n) > uint64(len(p)) {
		return nil, nil, false
	}
	if !huffman {
		return p[:n], p[n:], true
	}
	buf.Reset()
	if _, err := hpack.HuffmanDecode(buf, p[:n]); err != nil {
		return nil, nil, false
	}
	return buf.Bytes(), p[n:], true
}
