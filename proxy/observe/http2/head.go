package http2

import (
	"bytes"
	"encoding/binary"

	"github.com/lastcall-proxy/lastcall/proxy/observe"
	"github.com/lastcall-proxy/lastcall/proxy/observe/grpc"
)

// head is what is kept of one header block.
type head struct {
	request    observe.Request
	protocol   []byte // of an extended CONNECT (RFC 8441 section 4)
	status     int    // 0: none
	grpcStatus int    // -1: none
	dialect    grpc.Dialect
	size       int  // as SETTINGS_MAX_HEADER_LIST_SIZE counts
	keep       bool // fields are kept, to be written again
	fields     []byte
	words      []byte
	identity   string // name of the header that tells clients apart; empty: none
}

// clear makes h ready for the next block.
func (h *head) clear(keep bool, identity string) {
	*h = head{grpcStatus: -1, keep: keep, identity: identity, fields: h.fields[:0], words: h.words[:0]}
}

// word keeps a copy. What was given out before stays valid when words grows.
func (h *head) word(b []byte) []byte {
	at := len(h.words)
	h.words = append(h.words, b...)
	return h.words[at:len(h.words):len(h.words)]
}

// wanted tells the fields that add keeps.
func (h *head) wanted(name []byte) bool {
	switch string(name) {
	case ":method", ":path", ":authority", ":status", ":protocol", "host", "user-agent", "content-type", "grpc-status":
		return true
	}
	return h.identity != "" && string(name) == h.identity
}

func (h *head) add(name, value []byte, never bool) {
	h.size += len(name) + len(value) + entryCost
	if h.size > maxListSize {
		h.fields = h.fields[:0]
		return
	}
	if h.keep {
		h.fields = appendLiteral(h.fields, name, value, never)
	}
	if len(name) == 0 {
		return
	}
	switch string(name) {
	case ":method":
		h.request.Method = h.word(value)
	case ":path":
		if i := bytes.IndexByte(value, '?'); i >= 0 {
			value = value[:i]
		}
		h.request.Path = h.word(value)
	case ":authority":
		h.request.Authority = h.word(value)
	case ":status":
		h.status = number(value)
	case ":protocol":
		h.protocol = h.word(value)
	case "host":
		if len(h.request.Authority) == 0 {
			h.request.Authority = h.word(value)
		}
	case "user-agent":
		h.request.UserAgent = h.word(value)
	case "content-type":
		h.dialect = grpc.Of(value)
	case "grpc-status":
		h.grpcStatus = number(value)
	}
	if h.identity != "" && string(name) == h.identity && len(h.request.Identity) == 0 {
		h.request.Identity = h.word(value)
	}
}

// tooLong tells that the list is over its limit: its words are not complete then, and neither are its fields.
func (h *head) tooLong() bool { return h.size > maxListSize }

func number(b []byte) int {
	n := 0
	for _, c := range b {
		if c < '0' || c > '9' || n > 1000 {
			return -1
		}
		n = n*10 + int(c-'0')
	}
	return n
}

// appendLiteral writes a field that leaves the receiver's table as it is (RFC 7541 section 6.2.2, or 6.2.3 for one that
// must not be indexed by anyone).
func appendLiteral(b, name, value []byte, never bool) []byte {
	first := byte(0)
	if never {
		first = 0x10
	}
	b = append(b, first)
	b = append(appendLength(b, len(name)), name...)
	return append(appendLength(b, len(value)), value...)
}

func appendLength(b []byte, n int) []byte {
	if n < 127 {
		return append(b, byte(n))
	}
	return binary.AppendUvarint(append(b, 127), uint64(n-127)) // the same seven bits a byte, lowest first
}

// noTable is the size update to 0: the receiver keeps no table from then on, so that ours need not be in step with it.
const noTable = 0x20
