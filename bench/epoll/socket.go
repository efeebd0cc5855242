//go:build linux

package epoll

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The calls are raw: they don't block, and the scheduler's bookkeeping around them would cost more than the rest of a
// request. Only wait blocks, for maxWait at most: that is how long a garbage collection may have to wait for this thread.

const maxWait = 10 * time.Millisecond

// dialTimeout bounds the connect and the first answer, which block.
const dialTimeout = 10 * time.Second

func connect(to netip.AddrPort) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("load: socket: %w", err)
	}
	tv := unix.NsecToTimeval(dialTimeout.Nanoseconds())
	for _, set := range []func() error{
		func() error { return unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv) },
		func() error { return unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &tv) },
		func() error { return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1) },
		func() error {
			for {
				// The runtime's signals interrupt it: with a timeout set the kernel does not restart it, and asked again it goes on waiting.
				err := unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()})
				switch {
				case errors.Is(err, unix.EINTR):
				case errors.Is(err, unix.EISCONN):
					return nil
				default:
					return err
				}
			}
		},
	} {
		if err := set(); err != nil {
			_ = unix.Close(fd)
			return -1, fmt.Errorf("load: connect: %w", err)
		}
	}
	return fd, nil
}

func send(fd int, b []byte) error {
	n, _, e := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_NOSIGNAL, 0, 0)
	switch {
	case e != 0:
		return fmt.Errorf("load: send: %w", e)
	case int(n) != len(b):
		return fmt.Errorf("load: sent %d of %d bytes", n, len(b))
	}
	return nil
}

// receive returns 0 at the end of the stream, syscall.EAGAIN when there is nothing.
func receive(fd int, b []byte, flags uintptr) (int, syscall.Errno) {
	n, _, e := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), flags, 0, 0)
	return int(n), e
}

// wait is epoll_pwait2: epoll_wait rounds to milliseconds, which is more than what is measured.
func wait(epfd int, events []unix.EpollEvent, d time.Duration) (int, error) {
	ts := unix.NsecToTimespec(max(0, min(d, maxWait)).Nanoseconds())
	n, _, e := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT2, uintptr(epfd), uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events)), uintptr(unsafe.Pointer(&ts)), 0, 0)
	if e == unix.EINTR {
		return 0, nil
	}
	if e != 0 {
		return 0, fmt.Errorf("load: epoll: %w", e)
	}
	return int(n), nil
}
