package proxy

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/lastcall-proxy/lastcall/proxy/config"
)

// prepare gives the options that every socket of a connection gets; nil when none is asked for. A socket that does not
// know one (unix, or a kernel without it) goes on without.
func prepare(c *config.Config) func(fd int) {
	if c.KeepAlive <= 0 && c.UserTimeout <= 0 {
		return nil
	}
	return func(fd int) {
		if c.KeepAlive > 0 {
			seconds := max(1, int(c.KeepAlive/time.Second))
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
			_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, seconds)
			_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, max(1, seconds/3))
			_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 3)
		}
		if c.UserTimeout > 0 {
			_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(c.UserTimeout/time.Millisecond))
		}
	}
}
