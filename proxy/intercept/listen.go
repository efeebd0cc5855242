// Package intercept opens listening sockets and tells where a connection was meant to go before it was redirected.
// Linux only.
package intercept

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"
)

// backlog is how many connections may wait to be accepted; the kernel caps it at net.core.somaxconn (4096 since 5.4).
const backlog = 4096

// Listen opens a non-blocking listening TCP socket on host:port or :port and tells its address. A port without a host
// serves IPv6 and IPv4. The socket is plain TCP, never MPTCP: there SO_ORIGINAL_DST and TCP_USER_TIMEOUT fail.
// A port in use is an error that wraps unix.EADDRINUSE.
func Listen(ctx context.Context, addr string) (fd int, local string, err error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return -1, "", fmt.Errorf("intercept: address %q: %w", addr, err)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return -1, "", fmt.Errorf("intercept: address %q: port: %w", addr, err)
	}
	if host == "" {
		fd, local, err = listen(netip.AddrPortFrom(netip.IPv6Unspecified(), uint16(n)), true)
		if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EADDRNOTAVAIL) { // a kernel without IPv6
			fd, local, err = listen(netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(n)), false)
		}
		return fd, local, err
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		ips, lookupErr := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		if lookupErr != nil {
			return -1, "", fmt.Errorf("intercept: address %q: %w", addr, lookupErr)
		}
		ip = ips[0]
	}
	return listen(netip.AddrPortFrom(ip.Unmap(), uint16(n)), false)
}

func listen(a netip.AddrPort, dual bool) (int, string, error) {
	const flags = unix.SOCK_STREAM | unix.SOCK_NONBLOCK | unix.SOCK_CLOEXEC
	family := unix.AF_INET6
	var sa unix.Sockaddr = &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
	if a.Addr().Is4() {
		family, sa = unix.AF_INET, &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	fd, err := unix.Socket(family, flags, unix.IPPROTO_TCP)
	if err != nil {
		return -1, "", fmt.Errorf("intercept: socket: %w", err)
	}
	fail := func(what string, err error) (int, string, error) {
		_ = unix.Close(fd)
		return -1, "", fmt.Errorf("intercept: %s %s: %w", what, a, err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return fail("SO_REUSEADDR", err)
	}
	if family == unix.AF_INET6 {
		only := 1
		if dual {
			only = 0
		}
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, only); err != nil {
			return fail("IPV6_V6ONLY", err)
		}
	}
	if err := unix.Bind(fd, sa); err != nil {
		return fail("bind", err)
	}
	if err := unix.Listen(fd, backlog); err != nil {
		return fail("listen", err)
	}
	bound, err := unix.Getsockname(fd)
	if err != nil {
		return fail("getsockname", err)
	}
	return fd, AddrPort(bound).String(), nil
}

// AddrPort is a socket address as the rest of the code keeps it, IPv4 in IPv6 unmapped; the zero value for other families.
func AddrPort(sa unix.Sockaddr) netip.AddrPort {
	switch a := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr).Unmap(), uint16(a.Port))
	}
	return netip.AddrPort{}
}
