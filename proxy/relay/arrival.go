package relay

import (
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Arrived is when a TCP socket's last acknowledgement and its last byte came, by the kernel's own notes (TCP_INFO,
// tcpi_last_ack_recv and tcpi_last_data_recv, in ms): a loop that has a burst to work off gets to them later. At accept the
// one is when the connection was made, at the first read the other is when its first bytes were there. Neither is later than
// Now; both are Now where the socket does not tell (TLS, other families).
func (l *Loop) Arrived(fd int32) (ack, data int64) {
	var info unix.TCPInfo
	size := uint32(unix.SizeofTCPInfo)
	_, _, e := syscall.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.IPPROTO_TCP, unix.TCP_INFO, uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if e != 0 || uintptr(size) < unsafe.Offsetof(info.Last_ack_recv)+unsafe.Sizeof(info.Last_ack_recv) {
		return l.now, l.now
	}
	clock := l.cfg.Now() // l.now may be a batch old
	at := func(ago uint32) int64 { return min(l.now, clock-int64(ago)*int64(time.Millisecond)) }
	return at(info.Last_ack_recv), at(info.Last_data_recv)
}

// Arrived is when the client's last acknowledgement and its last byte came, where its socket tells.
func (k *Link) Arrived() (ack, data int64) {
	if s := &k.sides[0]; s.outer == nil && s.fd >= 0 {
		return k.loop.Arrived(s.fd)
	}
	return k.loop.now, k.loop.now
}
