package relay

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Connections that talk, block, half-close and end at any moment: a wake-up that is lost anywhere shows as a deadline.
func TestNoWakeUpIsLost(t *testing.T) {
	b := newBench(t)
	_ = b.app.Close()
	app, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = app.Close() }()
	go func() { // an echo that answers at once, before the relay knows that it is connected
		for {
			c, err := app.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = c.Write([]byte("hi"))
				_, _ = io.Copy(c, c)
				_ = c.Close()
			}()
		}
	}()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 512); err != nil {
		t.Fatal(err)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	sa4, _ := sa.(*unix.SockaddrInet4)
	addr := netip.AddrPortFrom(netip.AddrFrom4(sa4.Addr), uint16(sa4.Port)).String()
	target := Target{Addr: netip.MustParseAddrPort(app.Addr().String())}
	var ended sync.WaitGroup
	ln := b.loop.Listen(fd, func(fd int32, _ netip.AddrPort) {
		w := newWatcher()
		ended.Add(1)
		go func() { <-w.closed; ended.Done() }()
		k, err := b.loop.Attach(fd, w)
		if err != nil {
			t.Error(err)
			return
		}
		k.Dial(target)
	}, func(syscall.Errno) {})
	// In a crowd one connection's wake-up hides that another's was lost; alone nothing does.
	for _, crowd := range []struct{ clients, rounds int }{{24, 15}, {1, 300}} {
		var clients sync.WaitGroup
		for i := range crowd.clients {
			clients.Go(func() {
				r := rand.New(rand.NewPCG(uint64(i), 7))
				for round := range crowd.rounds {
					if err := talk(addr, r); err != nil {
						t.Errorf("client %d of %d, round %d: %v", i, crowd.clients, round, err)
						return
					}
				}
			})
		}
		clients.Wait()
	}
	ended.Wait()
	done := make(chan struct{})
	b.loop.Do(func() { ln.Close(); close(done) })
	<-done
}

func talk(addr string, r *rand.Rand) error {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	var sent, got bytes.Buffer
	read := make(chan error, 1)
	go func() {
		_, err := io.Copy(&got, c)
		read <- err
	}()
	for range 1 + r.IntN(6) {
		p := bytes.Repeat([]byte{byte(r.IntN(256))}, 1<<r.IntN(19))
		sent.Write(p)
		if _, err := c.Write(p); err != nil {
			return err
		}
	}
	tc, _ := c.(*net.TCPConn)
	if err := tc.CloseWrite(); err != nil {
		return err
	}
	if err := <-read; err != nil {
		return err
	}
	if want := append([]byte("hi"), sent.Bytes()...); !bytes.Equal(got.Bytes(), want) {
		return io.ErrUnexpectedEOF
	}
	return nil
}
