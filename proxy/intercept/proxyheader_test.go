package intercept

import (
	"bufio"
	"bytes"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pires/go-proxyproto"
)

// feed gives data in pieces of size and returns the result when it is done.
func feed(p *ProxyParser, data []byte, size int) (h *ProxyHeader, rest []byte, done bool, err error) {
	for len(data) > 0 {
		n := min(size, len(data))
		h, rest, done, err = p.Feed(data[:n])
		data = data[n:]
		if done {
			return h, append(bytes.Clone(rest), data...), true, err
		}
	}
	return nil, nil, false, nil
}

func TestProxyHeaderBothWays(t *testing.T) {
	four := [2]netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:5000"), netip.MustParseAddrPort("198.51.100.2:80")}
	six := [2]netip.AddrPort{netip.MustParseAddrPort("[2001:db8::1]:5000"), netip.MustParseAddrPort("[2001:db8::2]:80")}
	tests := []struct {
		name     string
		src, dst netip.AddrPort
		known    bool
	}{
		{"IPv4", four[0], four[1], true}, {"IPv6", six[0], six[1], true}, {"mixed", four[0], six[1], false}, {"unknown", netip.AddrPort{}, four[1], false},
	}
	for _, tt := range tests {
		for version := 1; version <= 2; version++ {
			t.Run(tt.name, func(t *testing.T) {
				head := AppendProxyHeader(nil, version, tt.src, tt.dst)
				want := ProxyHeader{Known: tt.known}
				if tt.known {
					want.Source, want.Dest = tt.src, tt.dst
				}
				for size := 1; size <= len(head)+3; size++ {
					got, rest, done, err := feed(&ProxyParser{Require: true}, append(bytes.Clone(head), "rest"...), size)
					if err != nil || !done || string(rest) != "rest" {
						t.Fatalf("version %d in pieces of %d: got rest %q, done %t, %v", version, size, rest, done, err)
					}
					if diff := cmp.Diff(&want, got, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
						t.Fatalf("version %d (-want +got):\n%s", version, diff)
					}
				}
				// Another implementation reads the same.
				other, err := proxyproto.Read(newReader(head))
				if err != nil {
					t.Fatalf("version %d: another parser: %v", version, err)
				}
				if tt.known && other.SourceAddr.String() != tt.src.String() {
					t.Errorf("version %d: another parser got %v, want %v", version, other.SourceAddr, tt.src)
				}
			})
		}
	}
}

func TestProxyHeaderAbsentOrBad(t *testing.T) {
	tests := []struct {
		name, data string
		require    bool
		err        error
	}{
		{"absent", "GET / HTTP/1.1\r\n", false, nil},
		{"absent, though it begins alike", "PROXX", false, nil},
		{"required", "GET /", true, ErrNoProxyHeader},
		{"too long", "PROXY TCP4 " + strings.Repeat("1", 200), false, ErrBadProxyHeader},
		{"bad address", "PROXY TCP4 1.2.3 1.2.3.4 1 2\r\n", false, ErrBadProxyHeader},
		{"wrong family", "PROXY TCP6 1.2.3.4 1.2.3.4 1 2\r\n", false, ErrBadProxyHeader},
		{"bad port", "PROXY TCP4 1.2.3.4 1.2.3.4 1 70000\r\n", false, ErrBadProxyHeader},
		{"bare LF", "PROXY UNKNOWN\n", false, ErrBadProxyHeader},
		{"v2 version", string(v2Signature[:]) + "\x11\x11\x00\x00", false, ErrBadProxyHeader},
		{"v2 short", string(v2Signature[:]) + "\x21\x11\x00\x04abcd", false, ErrBadProxyHeader},
		{"v2 family", string(v2Signature[:]) + "\x21\x41\x00\x00", false, ErrBadProxyHeader},
		{"v2 transport", string(v2Signature[:]) + "\x21\x13\x00\x00", false, ErrBadProxyHeader},
		{"v2 endless", string(v2Signature[:]) + "\x21\x11\xff\xff", false, ErrBadProxyHeader},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for size := 1; size <= len(tt.data); size++ {
				h, rest, done, err := feed(&ProxyParser{Require: tt.require}, []byte(tt.data), size)
				if !errors.Is(err, tt.err) || !done || h != nil {
					t.Fatalf("in pieces of %d: got %v, done %t, %v; want %v", size, h, done, err, tt.err)
				}
				if tt.err == nil && string(rest) != tt.data {
					t.Fatalf("rest: got %q, want all of %q", rest, tt.data)
				}
			}
		})
	}
}

func FuzzProxyHeader(f *testing.F) {
	src, dst := netip.MustParseAddrPort("192.0.2.1:1"), netip.MustParseAddrPort("192.0.2.2:2")
	f.Add(append(AppendProxyHeader(nil, 1, src, dst), "x"...), uint8(3))
	f.Add(append(AppendProxyHeader(nil, 2, src, dst), "x"...), uint8(1))
	f.Add([]byte("PROXY UNKNOWN whatever\r\n"), uint8(2))
	f.Fuzz(func(t *testing.T, data []byte, size uint8) {
		h, rest, done, err := feed(&ProxyParser{}, data, max(1, len(data)))
		h2, rest2, done2, err2 := feed(&ProxyParser{}, data, int(size%32)+1)
		if done != done2 || !errors.Is(err2, err) || (h == nil) != (h2 == nil) || (h != nil && *h != *h2) || (err == nil && !bytes.Equal(rest, rest2)) {
			t.Fatalf("cut: got %v %q %t %v, want %v %q %t %v", h2, rest2, done2, err2, h, rest, done, err)
		}
	})
}

func newReader(b []byte) *bufio.Reader { return bufio.NewReader(bytes.NewReader(b)) }
