package intercept

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ErrNotRedirected says that no redirect rule brought a connection here: it was made to this socket's own address.
var ErrNotRedirected = errors.New("intercept: the connection was not redirected")

const (
	soOriginalDst   = 80 // SO_ORIGINAL_DST of linux/netfilter_ipv4.h
	ip6tOriginalDst = 80 // IP6T_SO_ORIGINAL_DST of linux/netfilter_ipv6/ip6_tables.h
	sizeofSockaddr4 = unix.SizeofSockaddrInet4
	sizeofSockaddr6 = unix.SizeofSockaddrInet6
)

// OriginalDst tells where an accepted connection was going before a REDIRECT rule brought it here (netfilter's connection
// tracking remembers). A connection that was made to us directly, which a proxy that dialled its destination would turn
// into a loop, is ErrNotRedirected.
func OriginalDst(fd int) (netip.AddrPort, error) {
	local, err := unix.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("intercept: getsockname: %w", err)
	}
	own := AddrPort(local)
	var dst netip.AddrPort
	if own.Addr().Is4() {
		var sa unix.RawSockaddrInet4
		if err := getsockopt(fd, unix.SOL_IP, soOriginalDst, unsafe.Pointer(&sa), sizeofSockaddr4); err != nil {
			return netip.AddrPort{}, err
		}
		dst = netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), ntohs(sa.Port))
	} else {
		var sa unix.RawSockaddrInet6
		if err := getsockopt(fd, unix.SOL_IPV6, ip6tOriginalDst, unsafe.Pointer(&sa), sizeofSockaddr6); err != nil {
			return netip.AddrPort{}, err
		}
		dst = netip.AddrPortFrom(netip.AddrFrom16(sa.Addr).Unmap(), ntohs(sa.Port))
	}
	if dst == own {
		return netip.AddrPort{}, ErrNotRedirected
	}
	return dst, nil
}

// getsockopt fills p. ENOENT (no tracked connection) and ENOPROTOOPT (no connection tracking at all) mean that nothing was
// redirected.
func getsockopt(fd, level, name int, p unsafe.Pointer, size uint32) error {
	_, _, e := syscall.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(name), uintptr(p), uintptr(unsafe.Pointer(&size)), 0)
	switch e {
	case 0:
		return nil
	case unix.ENOENT, unix.ENOPROTOOPT:
		return ErrNotRedirected
	}
	return fmt.Errorf("intercept: SO_ORIGINAL_DST: %w", e)
}

func ntohs(p uint16) uint16 {
	b := (*[2]byte)(unsafe.Pointer(&p))
	return uint16(b[0])<<8 | uint16(b[1])
}
