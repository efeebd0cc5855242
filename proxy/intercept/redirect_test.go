package intercept

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The test re-executes itself in a network namespace of its own: every thread of a process must be in it, and the rules of
// the machine stay untouched. Inside, a veth pair leads to a second namespace, from where the connections come.
const insideEnv = "LASTCALL_INTERCEPT_INSIDE"

func TestMain(m *testing.M) {
	switch role := os.Getenv(insideEnv); role {
	case "":
		os.Exit(m.Run())
	case "peer": // connects to the address given and says what happened
		c, err := net.DialTimeout("tcp", os.Args[1], 5*time.Second)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		_ = c.Close()
		os.Exit(0)
	default:
		if err := inside(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("redirected as wanted")
		os.Exit(0)
	}
}

func TestRedirect(t *testing.T) {
	for _, tool := range []string{"ip", "nsenter", "sleep"} {
		if _, err := exec.LookPath(tool); err != nil {
			if os.Getenv("LASTCALL_REQUIRE_NETNS") != "" {
				t.Fatalf("a network namespace is required here: %v", err)
			}
			t.Skipf("a tool that the test sets its namespaces up with is missing: %v", err)
		}
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), insideEnv+"=main")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNET}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, unix.EPERM) {
		if os.Getenv("LASTCALL_REQUIRE_NETNS") != "" {
			t.Fatalf("a network namespace is required here: %v", err)
		}
		t.Skipf("no privilege to make a network namespace: %v", err)
	}
	if err != nil {
		t.Fatalf("inside the namespace: %v\n%s", err, out)
	}
}

func sh(args ...string) error {
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%v: %w: %s", args, err, out)
	}
	return nil
}

// inside runs in the new namespace.
func inside() error {
	runtime.LockOSThread()
	peer := exec.Command("sleep", "30")
	peer.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNET}
	if err := peer.Start(); err != nil {
		return err
	}
	defer func() { _ = peer.Process.Kill(); _ = peer.Wait() }()
	pid := fmt.Sprint(peer.Process.Pid)
	in := func(args ...string) error { return sh(append([]string{"nsenter", "-t", pid, "-n"}, args...)...) }
	for _, err := range []error{
		sh("ip", "link", "set", "lo", "up"),
		sh("ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1", "netns", pid),
		sh("ip", "addr", "add", "10.77.0.1/24", "dev", "v0"), sh("ip", "addr", "add", "fd77::1/64", "dev", "v0", "nodad"), sh("ip", "link", "set", "v0", "up"),
		in("ip", "addr", "add", "10.77.0.2/24", "dev", "v1"), in("ip", "addr", "add", "fd77::2/64", "dev", "v1", "nodad"), in("ip", "link", "set", "v1", "up"),
	} {
		if err != nil {
			return err
		}
	}
	fd, local, err := Listen(context.Background(), ":0")
	if err != nil {
		return err
	}
	to := netip.MustParseAddrPort(local).Port()
	cfg := RedirectConfig{InboundPorts: []uint16{8080, 9090}, InboundTo: to, OutboundTo: to, ExemptUID: 4183}
	for range 2 { // a second call replaces the first
		if err := Redirect(cfg); err != nil {
			return err
		}
	}
	for _, dst := range []string{"10.77.0.1:8080", "[fd77::1]:9090"} {
		c := exec.Command("nsenter", "-t", pid, "-n", os.Args[0], dst)
		c.Env = append(os.Environ(), insideEnv+"=peer")
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("inbound %s: %w: %s", dst, err, out)
		}
		if err := wantOriginal(fd, dst); err != nil {
			return fmt.Errorf("inbound: %w", err)
		}
	}
	for _, dst := range []string{"10.77.0.2:443", "[fd77::2]:443"} { // nobody listens there
		c, err := net.DialTimeout("tcp", dst, 5*time.Second)
		if err != nil {
			return fmt.Errorf("outbound %s: %w", dst, err)
		}
		_ = c.Close()
		if err := wantOriginal(fd, dst); err != nil {
			return fmt.Errorf("outbound: %w", err)
		}
	}
	// The sidecar's own connections go where they are meant to: refused there, since nobody listens.
	for _, dst := range []unix.Sockaddr{&unix.SockaddrInet4{Port: 443, Addr: [4]byte{10, 77, 0, 2}}, &unix.SockaddrInet6{Port: 443, Addr: netip.MustParseAddr("fd77::2").As16()}} {
		if err := connectAs(int(cfg.ExemptUID), dst); !errors.Is(err, unix.ECONNREFUSED) {
			return fmt.Errorf("exempt user: got %w, want %w", err, unix.ECONNREFUSED)
		}
	}
	// A connection to the sidecar's own port is no redirected one: dialling its destination would be a loop.
	c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", to))
	if err != nil {
		return err
	}
	_ = c.Close()
	if err := wantOriginal(fd, ""); !errors.Is(err, ErrNotRedirected) {
		return fmt.Errorf("direct: got %w, want %w", err, ErrNotRedirected)
	}
	if err := errors.Join(Undo(), Undo()); err != nil {
		return err
	}
	if c, err := net.DialTimeout("tcp", "10.77.0.2:443", 2*time.Second); err == nil {
		_ = c.Close()
		return errors.New("still redirected after Undo")
	}
	return nil
}

// wantOriginal accepts one connection and compares where it was going.
func wantOriginal(fd int, want string) error {
	for began := time.Now(); ; {
		n, _, err := unix.Accept4(fd, unix.SOCK_CLOEXEC)
		if errors.Is(err, unix.EAGAIN) && time.Since(began) < 5*time.Second {
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 100)
			continue
		}
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(n) }()
		got, err := OriginalDst(n)
		if err != nil {
			return err
		}
		if got.String() != want {
			return fmt.Errorf("original destination: got %v, want %s", got, want)
		}
		return nil
	}
}

// connectAs connects from a socket of another user. Only this thread changes its user (the one for files, which is what
// the rule compares), and changes back.
func connectAs(uid int, dst unix.Sockaddr) error {
	was, err := unix.SetfsuidRetUid(uid)
	if err != nil {
		return err
	}
	defer func() { _, _ = unix.SetfsuidRetUid(was) }()
	family := unix.AF_INET6
	if _, four := dst.(*unix.SockaddrInet4); four {
		family = unix.AF_INET
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	return unix.Connect(fd, dst)
}
