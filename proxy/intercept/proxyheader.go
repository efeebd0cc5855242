package intercept

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"strconv"
)

// Errors of a PROXY protocol header.
var (
	ErrNoProxyHeader  = errors.New("intercept: no PROXY protocol header")
	ErrBadProxyHeader = errors.New("intercept: malformed PROXY protocol header")
)

// Bounds of a header: 107 bytes for version 1 by its specification (section 2.1); version 2 could announce 64 KiB of
// extensions, of which nobody needs more than this.
const (
	maxV1 = 107
	maxV2 = 4 << 10
)

var v2Signature = [...]byte{'\r', '\n', '\r', '\n', 0, '\r', '\n', 'Q', 'U', 'I', 'T', '\n'}

const v1Signature = "PROXY "

// ProxyHeader is what a header tells. Known is false for a health check of the balancer's own (LOCAL), for UNKNOWN, and for
// families without an address that means something here.
type ProxyHeader struct {
	Source, Dest netip.AddrPort
	Known        bool
}

// ProxyParser reads a PROXY protocol header (version 1 or 2) off the beginning of a connection, however it is cut. Its zero
// value accepts connections without one.
type ProxyParser struct {
	Require bool // a connection without a header is an error
	buf     []byte
}

// Feed takes the next bytes. Until done they all belong to the header, or may; then rest are those behind it (for a
// connection without one, everything fed so far, which stays valid), and header is nil if there was none.
func (p *ProxyParser) Feed(b []byte) (header *ProxyHeader, rest []byte, done bool, err error) {
	p.buf = append(p.buf, b...)
	switch {
	case couldBe(p.buf, v2Signature[:]):
		return p.v2()
	case couldBe(p.buf, []byte(v1Signature)):
		return p.v1()
	case p.Require:
		return nil, nil, true, ErrNoProxyHeader
	}
	return nil, p.buf, true, nil
}

// EOF tells what is left when the source ends: bytes that looked like a header's beginning and were none.
func (p *ProxyParser) EOF() (rest []byte, err error) {
	if p.Require {
		return nil, ErrNoProxyHeader
	}
	return p.buf, nil
}

func couldBe(b, signature []byte) bool {
	n := min(len(b), len(signature))
	return bytes.Equal(b[:n], signature[:n])
}

func (p *ProxyParser) v1() (*ProxyHeader, []byte, bool, error) {
	i := bytes.IndexByte(p.buf, '\n')
	if i < 0 {
		if len(p.buf) >= maxV1 {
			return nil, nil, true, ErrBadProxyHeader
		}
		return nil, nil, false, nil
	}
	if i >= maxV1 || i == 0 || p.buf[i-1] != '\r' {
		return nil, nil, true, ErrBadProxyHeader
	}
	h, ok := parseV1(string(p.buf[:i-1]))
	if !ok {
		return nil, nil, true, ErrBadProxyHeader
	}
	return h, p.buf[i+1:], true, nil
}

func parseV1(line string) (*ProxyHeader, bool) {
	f := bytes.Split([]byte(line), []byte(" "))
	if len(f) >= 2 && string(f[1]) == "UNKNOWN" {
		return &ProxyHeader{}, true
	}
	if len(f) != 6 || (string(f[1]) != "TCP4" && string(f[1]) != "TCP6") {
		return nil, false
	}
	src, ok1 := v1Address(f[2], f[4], string(f[1]))
	dst, ok2 := v1Address(f[3], f[5], string(f[1]))
	return &ProxyHeader{Source: src, Dest: dst, Known: true}, ok1 && ok2
}

func v1Address(ip, port []byte, family string) (netip.AddrPort, bool) {
	a, err := netip.ParseAddr(string(ip))
	if err != nil || a.Zone() != "" || a.Is4() != (family == "TCP4") {
		return netip.AddrPort{}, false
	}
	n, err := strconv.ParseUint(string(port), 10, 16)
	if err != nil || (len(port) > 1 && port[0] == '0') {
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(a, uint16(n)), true
}

func (p *ProxyParser) v2() (*ProxyHeader, []byte, bool, error) {
	const fixed = 16 // with families 0-3 and transports 0-2; the specification wants others refused
	if len(p.buf) < fixed {
		return nil, nil, false, nil
	}
	command, family := p.buf[12], p.buf[13]
	size := int(binary.BigEndian.Uint16(p.buf[14:]))
	if command>>4 != 2 || command&0x0f > 1 || family>>4 > 3 || family&0x0f > 2 || size > maxV2 {
		return nil, nil, true, ErrBadProxyHeader
	}
	if len(p.buf) < fixed+size {
		return nil, nil, false, nil
	}
	body, rest := p.buf[fixed:fixed+size], p.buf[fixed+size:]
	h := &ProxyHeader{}
	if command&0x0f == 1 { // PROXY; LOCAL says nothing about addresses
		switch family {
		case 0x11: // TCP over IPv4
			if size < 12 {
				return nil, nil, true, ErrBadProxyHeader
			}
			h.Known = true
			h.Source = netip.AddrPortFrom(netip.AddrFrom4([4]byte(body[0:4])), binary.BigEndian.Uint16(body[8:]))
			h.Dest = netip.AddrPortFrom(netip.AddrFrom4([4]byte(body[4:8])), binary.BigEndian.Uint16(body[10:]))
		case 0x21: // TCP over IPv6
			if size < 36 {
				return nil, nil, true, ErrBadProxyHeader
			}
			h.Known = true
			h.Source = netip.AddrPortFrom(netip.AddrFrom16([16]byte(body[0:16])), binary.BigEndian.Uint16(body[32:]))
			h.Dest = netip.AddrPortFrom(netip.AddrFrom16([16]byte(body[16:32])), binary.BigEndian.Uint16(body[34:]))
		}
	}
	return h, rest, true, nil
}

// AppendProxyHeader appends the header that tells an app who is behind a connection. Addresses that are unknown, or of
// different families, become UNKNOWN (version 1) or LOCAL (version 2).
func AppendProxyHeader(b []byte, version int, src, dst netip.AddrPort) []byte {
	s, d := src.Addr().Unmap(), dst.Addr().Unmap()
	known := s.IsValid() && d.IsValid() && s.Is4() == d.Is4()
	if version == 1 {
		if !known {
			return append(b, "PROXY UNKNOWN\r\n"...)
		}
		family := "TCP6 "
		if s.Is4() {
			family = "TCP4 "
		}
		b = append(append(b, v1Signature...), family...)
		b = append(s.WithZone("").AppendTo(b), ' ')
		b = append(d.WithZone("").AppendTo(b), ' ')
		b = append(strconv.AppendUint(b, uint64(src.Port()), 10), ' ')
		return append(strconv.AppendUint(b, uint64(dst.Port()), 10), "\r\n"...)
	}
	b = append(b, v2Signature[:]...)
	if !known {
		return append(b, 0x20, 0, 0, 0)
	}
	family, size := byte(0x21), byte(36)
	if s.Is4() {
		family, size = 0x11, 12
	}
	b = append(b, 0x21, family, 0, size)
	b = append(append(b, s.AsSlice()...), d.AsSlice()...)
	b = binary.BigEndian.AppendUint16(b, src.Port())
	return binary.BigEndian.AppendUint16(b, dst.Port())
}
