package grpc_test

import (
	"encoding/binary"
	"testing"

	"github.com/lastcall-proxy/lastcall/proxy/observe/grpc"
)

func TestOf(t *testing.T) {
	for text, want := range map[string]grpc.Dialect{
		"application/grpc": grpc.GRPC, "application/grpc+proto": grpc.GRPC, "application/grpc;charset=utf-8": grpc.GRPC, "application/grpc-web": grpc.Web, "application/grpc-web+proto": grpc.Web,
		"application/grpc-web-text": grpc.WebText, "application/grpc-web-text+proto": grpc.WebText, "application/connect+json": grpc.Connect, "application/connect+": grpc.None,
		"application/json": grpc.None, "": grpc.None, "application/grpcx": grpc.None, "application/grp": grpc.None,
	} {
		if got := grpc.Of([]byte(text)); got != want {
			t.Errorf("%q: got %d, want %d", text, got, want)
		}
	}
}

func frame(flags byte, n int) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{flags}, uint32(n)), make([]byte, n)...)
}

func join(all ...[]byte) (out []byte) {
	for _, b := range all {
		out = append(out, b...)
	}
	return out
}

// Messages are counted the same wherever a body is cut, and only between them is a boundary.
func TestScanner(t *testing.T) {
	for name, tt := range map[string]struct {
		dialect  grpc.Dialect
		body     []byte
		messages int
		whole    bool
	}{
		"none":               {grpc.GRPC, nil, 0, true},
		"empty message":      {grpc.GRPC, frame(0, 0), 1, true},
		"three":              {grpc.GRPC, join(frame(0, 3), frame(1, 0), frame(1, 300)), 3, true},
		"cut head":           {grpc.GRPC, join(frame(0, 3), frame(0, 0)[:4]), 1, false},
		"cut message":        {grpc.GRPC, join(frame(0, 3), frame(0, 9)[:13]), 1, false},
		"trailers of Web":    {grpc.Web, join(frame(0, 3), frame(0x80, 20)), 1, true},
		"end of Connect":     {grpc.Connect, join(frame(0, 3), frame(1, 4), frame(2, 2)), 2, true},
		"empty end":          {grpc.Connect, join(frame(0, 3), frame(2, 0)), 1, true},
		"text is not looked": {grpc.WebText, []byte("AAAAAAA="), 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			for cut := range len(tt.body) + 1 {
				for step := 1; step <= max(1, len(tt.body)-cut); step += 7 {
					var s grpc.Scanner
					n := s.Write(tt.body[:cut], tt.dialect)
					for rest := tt.body[cut:]; len(rest) > 0; {
						k := min(step, len(rest))
						n += s.Write(rest[:k], tt.dialect)
						rest = rest[k:]
					}
					if n != tt.messages || s.AtBoundary() != tt.whole {
						t.Fatalf("cut at %d, then every %d: %d messages, boundary %t; want %d, %t", cut, step, n, s.AtBoundary(), tt.messages, tt.whole)
					}
				}
			}
		})
	}
}

// Any bytes, cut in two: the same count and the same boundary.
func FuzzScanner(f *testing.F) {
	f.Add(join(frame(0, 3), frame(1, 2)), uint8(4), uint8(1))
	f.Add(join(frame(0x80, 3), frame(2, 0)), uint8(1), uint8(2))
	f.Add([]byte{0, 0xff, 0xff, 0xff, 0xff, 1}, uint8(3), uint8(4))
	f.Fuzz(func(t *testing.T, body []byte, cut, dialect uint8) {
		d := grpc.Dialect(dialect % 5)
		var whole, parts grpc.Scanner
		want := whole.Write(body, d)
		at := min(int(cut), len(body))
		if got := parts.Write(body[:at], d) + parts.Write(body[at:], d); got != want || parts.AtBoundary() != whole.AtBoundary() {
			t.Errorf("cut at %d: %d messages, boundary %t; whole: %d, %t", at, got, parts.AtBoundary(), want, whole.AtBoundary())
		}
	})
}
