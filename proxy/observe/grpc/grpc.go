// Package grpc finds the messages in the bodies of gRPC calls and of its relatives: gRPC over HTTP/2 (PROTOCOL-HTTP2.md of
// the gRPC project), gRPC-Web, and streaming Connect. All of them put five bytes in front of each message: a byte of flags
// and a big-endian length. Messages themselves are never read.
package grpc

import "encoding/binary"

// Dialect is a relative of gRPC, told by the content type.
type Dialect uint8

// Dialects.
const (
	None    Dialect = iota
	GRPC            // application/grpc: status in trailers
	Web             // application/grpc-web: trailers are the body's last frame
	WebText         // application/grpc-web-text: the body is base64, so that its frames are not seen
	Connect         // application/connect+…: the end is the body's last frame
)

// Of tells the dialect of a content type; parameters and the codec's suffix do not matter.
func Of(contentType []byte) Dialect {
	for i, c := range contentType {
		if c == ';' || c == ' ' {
			contentType = contentType[:i]
			break
		}
	}
	switch {
	case is(contentType, "application/grpc"):
		return GRPC
	case is(contentType, "application/grpc-web"):
		return Web
	case is(contentType, "application/grpc-web-text"):
		return WebText
	case len(contentType) > len("application/connect+") && string(contentType[:len("application/connect+")]) == "application/connect+":
		return Connect
	}
	return None
}

// is compares up to a "+codec" suffix.
func is(b []byte, want string) bool {
	return len(b) >= len(want) && string(b[:len(want)]) == want && (len(b) == len(want) || b[len(want)] == '+')
}

// Bits of a frame's first byte that do not announce a message.
const (
	flagTrailers  = 0x80 // gRPC-Web: the frame holds the trailers
	flagEndStream = 0x02 // Connect: the frame holds the end of the stream
)

// Scanner walks one direction's body. Its zero value stands at the start, which is a boundary.
type Scanner struct {
	head [5]byte
	got  uint8
	left uint32
	last bool // the frame under way is no message: it ends the body
}

// Write takes the next bytes and tells how many messages ended in them.
func (s *Scanner) Write(p []byte, d Dialect) (messages int) {
	if d == WebText {
		return 0
	}
	for len(p) > 0 {
		if s.left > 0 {
			n := min(int(s.left), len(p))
			s.left -= uint32(n)
			p = p[n:]
		} else {
			n := copy(s.head[s.got:], p)
			s.got += uint8(n)
			p = p[n:]
			if int(s.got) < len(s.head) {
				return messages
			}
			s.got = 0
			s.left = binary.BigEndian.Uint32(s.head[1:])
			s.last = d == Web && s.head[0]&flagTrailers != 0 || d == Connect && s.head[0]&flagEndStream != 0
		}
		if s.left == 0 && !s.last {
			messages++
		}
	}
	return messages
}

// AtBoundary tells whether the body could end here without losing a part of a message.
func (s *Scanner) AtBoundary() bool { return s.got == 0 && s.left == 0 }
