package http1

import (
	"bytes"
	"math"
)

// state is where a flow's parser stands in a message.
type state uint8

const (
	stStart      state = iota // before or in the start line
	stHeader                  // in the header section
	stBody                    // left bytes of a body of known length
	stChunkSize               // in a chunk-size line
	stChunkData               // left bytes of a chunk
	stChunkEnd                // the line end behind a chunk
	stTrailer                 // in the trailer section
	stUntilClose              // a response body that ends with the connection
	stUndecided               // request flow: an upgrade was asked for, the answer decides what follows
)

// Limits of a head and of a chunk-size line with its extensions.
const (
	maxHead      = 64 << 10
	maxChunkLine = 4 << 10
)

// message is the framing of one flow (RFC 9112 section 6).
type message struct {
	state state
	line  []byte // the beginning of a line that was split over reads; nil between lines
	size  int    // bytes of the head, or of the chunk-size line, so far
	left  uint64

	// Of the head that is being read.
	length    int64 // Content-Length, -1 without
	chunked   bool
	encoded   bool // some transfer coding that is not chunked last
	close     bool
	keepAlive bool
	upgrade   bool // Connection lists upgrade
	http10    bool
	conflict  bool
}

func (m *message) reset() { *m = message{length: -1} }

// atStart tells that no byte of a further message has come.
func (m *message) atStart() bool { return m.state == stStart && len(m.line) == 0 && m.size == 0 }

// takeLine looks for the end of the current line in p. n is how many bytes it took; line is without its line end and is
// nil while the line is not whole. A bare LF ends a line too (RFC 9112 section 2.2).
func (m *message) takeLine(p []byte) (line []byte, n int) {
	i := bytes.IndexByte(p, '\n')
	if i < 0 {
		m.line = append(m.line, p...)
		m.size += len(p)
		return nil, len(p)
	}
	m.size += i + 1
	line = p[:i]
	if len(m.line) > 0 {
		m.line = append(m.line, line...)
		line = m.line
		m.line = m.line[:0]
	}
	if k := len(line); k > 0 && line[k-1] == '\r' {
		line = line[:k-1]
	}
	if line == nil {
		line = p[:0]
	}
	return line, i + 1
}

// framing reads the fields that decide how a message ends. Others are told by their first letter and skipped.
func (m *message) framing(name, value []byte) {
	switch name[0] | 0x20 {
	case 'c':
		switch {
		case foldEqual(name, "content-length"):
			m.contentLength(value)
		case foldEqual(name, "connection"):
			m.connection(value)
		}
	case 't':
		if foldEqual(name, "transfer-encoding") {
			m.encoded = true
			m.chunked = foldEqual(lastToken(value), "chunked")
		}
	}
}

func (m *message) contentLength(value []byte) {
	if len(value) == 0 || len(value) > 18 {
		m.conflict = true
		return
	}
	var n int64
	for _, c := range value {
		if c < '0' || c > '9' {
			m.conflict = true
			return
		}
		n = n*10 + int64(c-'0')
	}
	if m.length >= 0 && m.length != n {
		m.conflict = true
	}
	m.length = n
}

// connection reads a list of tokens, in any case; there may be several such lines.
func (m *message) connection(value []byte) {
	for len(value) > 0 {
		token := value
		if i := bytes.IndexByte(value, ','); i >= 0 {
			token, value = value[:i], value[i+1:]
		} else {
			value = nil
		}
		token = trim(token)
		switch {
		case foldEqual(token, "close"):
			m.close = true
		case foldEqual(token, "keep-alive"):
			m.keepAlive = true
		case foldEqual(token, "upgrade"):
			m.upgrade = true
		}
	}
}

// persists tells whether the connection goes on after this message (RFC 9112 section 9.3).
func (m *message) persists() bool { return !m.close && (!m.http10 || m.keepAlive) }

// chunkSize reads a chunk-size line (RFC 9112 section 7.1), extensions ignored.
func chunkSize(line []byte) (uint64, bool) {
	var n uint64
	i := 0
	for ; i < len(line); i++ {
		d := hexDigit(line[i])
		if d < 0 {
			break
		}
		if n > math.MaxUint64>>5 {
			return 0, false
		}
		n = n<<4 | uint64(d)
	}
	if i == 0 {
		return 0, false
	}
	rest := trim(line[i:])
	return n, len(rest) == 0 || rest[0] == ';'
}

func hexDigit(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return -1
}

func trim(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	for len(b) > 0 && (b[len(b)-1] == ' ' || b[len(b)-1] == '\t') {
		b = b[:len(b)-1]
	}
	return b
}

func lastToken(b []byte) []byte { return trim(b[bytes.LastIndexByte(b, ',')+1:]) }

// foldEqual compares with a lower-case name, ASCII case aside.
func foldEqual(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// field splits a header line. ok is false for what RFC 9112 section 5 does not allow.
func field(line []byte) (name, value []byte, ok bool) {
	i := bytes.IndexByte(line, ':')
	if i <= 0 || line[0] == ' ' || line[0] == '\t' || line[i-1] == ' ' || line[i-1] == '\t' {
		return nil, nil, false
	}
	return line[:i], trim(line[i+1:]), true
}

// requestLine splits METHOD SP target SP HTTP/1.x.
func requestLine(line []byte) (method, target []byte, minor byte, ok bool) {
	i := bytes.IndexByte(line, ' ')
	j := bytes.LastIndexByte(line, ' ')
	if i <= 0 || j <= i+1 {
		return nil, nil, 0, false
	}
	version := line[j+1:]
	if len(version) != 8 || string(version[:7]) != "HTTP/1." || version[7] < '0' || version[7] > '9' {
		return nil, nil, 0, false
	}
	for _, c := range line[:i] {
		if c <= ' ' || c >= 0x7f || c == ':' || c == '/' {
			return nil, nil, 0, false
		}
	}
	return line[:i], line[i+1 : j], version[7] - '0', true
}

// statusLine reads HTTP/1.x SP code.
func statusLine(line []byte) (code int, minor byte, ok bool) {
	if len(line) < 12 || string(line[:7]) != "HTTP/1." || line[8] != ' ' {
		return 0, 0, false
	}
	for _, c := range line[9:12] {
		if c < '0' || c > '9' {
			return 0, 0, false
		}
		code = code*10 + int(c-'0')
	}
	return code, line[7] - '0', code >= 100
}
