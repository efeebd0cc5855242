package proxy

import "net/netip"

// forwardedLines are the header lines that tell an app its client's address: the de-facto X-Forwarded-For, and Forwarded
// (RFC 7239 section 4; an IPv6 address stands in brackets and quotes).
func forwardedLines(client netip.Addr, proto string) []byte {
	client = client.Unmap().WithZone("")
	node := client.String()
	if client.Is6() {
		node = `"[` + node + `]"`
	}
	return []byte("X-Forwarded-For: " + client.String() + "\r\nForwarded: for=" + node + ";proto=" + proto + "\r\n")
}
