package proxy

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/lastcall-proxy/lastcall/proxy/relay"
)

// resolve turns an app's address (host:port or unix:PATH) into a target. Names are looked up once, at the start: an app
// beside us is an address.
func resolve(ctx context.Context, app string) (relay.Target, error) {
	if path, ok := strings.CutPrefix(app, "unix:"); ok {
		return relay.Target{Path: path}, nil
	}
	if ap, err := netip.ParseAddrPort(app); err == nil {
		return relay.Target{Addr: ap}, nil
	}
	host, port, err := net.SplitHostPort(app)
	if err != nil {
		return relay.Target{}, fmt.Errorf("proxy: app %q: %w", app, err)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return relay.Target{}, fmt.Errorf("proxy: app %q: port: %w", app, err)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return relay.Target{}, fmt.Errorf("proxy: app %q: %w", app, err)
	}
	return relay.Target{Addr: netip.AddrPortFrom(ips[0].Unmap(), uint16(n))}, nil
}

func targetString(t relay.Target) string {
	if t.Path != "" {
		return "unix:" + t.Path
	}
	return t.Addr.String()
}

// dialReasons is the closed list of what dialReason says.
func dialReasons() []string {
	return []string{"refused", "timeout", "reset", "unreachable", "descriptors", "no_socket", "backlog_full", "other"}
}

// dialReason is app_dial_errors_total's label.
func dialReason(e syscall.Errno) string {
	switch e {
	case unix.ECONNREFUSED:
		return "refused"
	case unix.ETIMEDOUT:
		return "timeout"
	case unix.ECONNRESET:
		return "reset"
	case unix.EHOSTUNREACH, unix.ENETUNREACH:
		return "unreachable"
	case unix.EMFILE, unix.ENFILE:
		return "descriptors"
	case unix.ENOENT:
		return "no_socket"
	case unix.EAGAIN:
		return "backlog_full"
	}
	return "other"
}

func errnoText(e syscall.Errno, timeout bool) string {
	if timeout {
		return "no answer within the dial timeout"
	}
	return e.Error()
}
