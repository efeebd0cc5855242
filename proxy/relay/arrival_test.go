package relay

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What waited for the loop came when it came: the kernel knows.
func TestArrived(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	dialled := time.Now()
	time.Sleep(150 * time.Millisecond) // in the listener's queue
	s, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	raw, err := s.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	clock := func() int64 { return time.Now().UnixNano() }
	look := func() (ack, data time.Time) {
		l := &Loop{now: clock(), cfg: Config{Now: clock}}
		_ = raw.Control(func(fd uintptr) {
			a, d := l.Arrived(int32(fd))
			if a > l.now || d > l.now {
				t.Errorf("later than now: %d and %d, now %d", a, d, l.now)
			}
			ack, data = time.Unix(0, a), time.Unix(0, d)
		})
		return ack, data
	}
	const tick = 20 * time.Millisecond // a jiffy is 10 ms at worst
	if ack, _ := look(); ack.Sub(dialled).Abs() > tick {
		t.Errorf("the connection was made %v from when it was", ack.Sub(dialled))
	}
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	wrote := time.Now()
	time.Sleep(150 * time.Millisecond)
	if _, data := look(); data.Sub(wrote).Abs() > tick {
		t.Errorf("the bytes came %v from when they did", data.Sub(wrote))
	}

	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = unix.Close(pair[0]), unix.Close(pair[1]) }()
	l := &Loop{now: 7, cfg: Config{Now: clock}}
	if a, d := l.Arrived(int32(pair[0])); a != 7 || d != 7 {
		t.Errorf("of a socket that does not tell: %d and %d", a, d)
	}
}
