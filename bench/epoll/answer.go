package epoll

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// maxHead bounds what is kept of a head that comes in pieces.
const maxHead = 64 << 10

// answer follows one HTTP/1 answer after the other on a connection, to the byte.
type answer struct {
	head   []byte // what came of an incomplete head
	left   int64  // of the body
	inBody bool
}

// feed takes what was read and says whether the answer is whole.
func (a *answer) feed(b []byte) (bool, error) {
	if !a.inBody {
		if len(a.head) > 0 {
			a.head = append(a.head, b...)
			b = a.head
		}
		end := bytes.Index(b, []byte("\r\n\r\n"))
		if end < 0 {
			if len(b) > maxHead {
				return false, errors.New("load: head without an end")
			}
			if len(a.head) == 0 {
				a.head = append(a.head, b...)
			}
			return false, nil
		}
		length, err := contentLength(b[:end+2])
		if err != nil {
			return false, err
		}
		a.left, a.inBody, a.head, b = length, true, a.head[:0], b[end+4:]
	}
	a.left -= int64(len(b))
	switch {
	case a.left < 0:
		return false, fmt.Errorf("load: %d bytes too many", -a.left)
	case a.left > 0:
		return false, nil
	}
	a.inBody = false
	return true, nil
}

// contentLength reads the one field that matters, of an answer that must be a success.
func contentLength(head []byte) (int64, error) {
	status, rest, _ := bytes.Cut(head, []byte("\r\n"))
	if !bytes.HasPrefix(status, []byte("HTTP/1.1 2")) {
		return 0, fmt.Errorf("load: answer %q", status)
	}
	for len(rest) > 0 {
		var line []byte
		line, rest, _ = bytes.Cut(rest, []byte("\r\n"))
		const name = "content-length:"
		if len(line) <= len(name) || line[0]|0x20 != 'c' || !bytes.EqualFold(line[:len(name)], []byte(name)) {
			continue
		}
		n, err := strconv.ParseInt(string(bytes.TrimSpace(line[len(name):])), 10, 64)
		if err != nil || n < 0 {
			return 0, fmt.Errorf("load: line %q", line)
		}
		return n, nil
	}
	return 0, errors.New("load: answer without Content-Length")
}
