package relay

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lastcall-proxy/lastcall/proxy/observe"
)

const starvedEnv = "LASTCALL_RELAY_STARVED"

func TestMain(m *testing.M) {
	if os.Getenv(starvedEnv) != "" {
		starved()
		return
	}
	os.Exit(m.Run())
}

// greeter answers a connection with one byte and leaves when the client does. It has no app.
type greeter struct {
	*watcher
	link *Link
}

func (g *greeter) EOF(observe.Direction) []observe.Edit {
	g.link.FinishNext()
	return nil
}

// starved is a process with few descriptors that accepts what it can. It says on stdout where it listens and each time
// it had to pause.
func starved() {
	_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 40, Max: 40})
	loop, err := NewLoop(Config{Linger: 50 * time.Millisecond})
	if err != nil {
		fmt.Println(err)
		return
	}
	go loop.Run()
	fd, _ := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	_ = unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	_ = unix.Listen(fd, 256)
	sa, _ := unix.Getsockname(fd)
	sa4, _ := sa.(*unix.SockaddrInet4)
	fmt.Println("addr", netip.AddrPortFrom(netip.AddrFrom4(sa4.Addr), uint16(sa4.Port)))
	loop.Listen(fd, func(fd int32, _ netip.AddrPort) {
		g := &greeter{watcher: newWatcher()}
		k, err := loop.Attach(fd, g)
		if err != nil {
			return
		}
		g.link = k
		k.Apply([]observe.Edit{{Dir: observe.FromApp, Insert: []byte("k")}})
	}, func(e syscall.Errno) { fmt.Println("full", e) })
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// Out of descriptors a listener rests, does not spin, and comes back by itself.
func TestOutOfDescriptors(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), starvedEnv+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close(); _ = cmd.Wait() }()
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("the child said nothing")
	}
	addr, ok := strings.CutPrefix(lines.Text(), "addr ")
	if !ok {
		t.Fatalf("the child said %q", lines.Text())
	}
	var conns []net.Conn
	for range 80 {
		c, err := net.DialTimeout("tcp", addr, 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	if !lines.Scan() || !strings.HasPrefix(lines.Text(), "full ") {
		t.Fatalf("the child said %q, want that it is full", lines.Text())
	}
	pauses := make(chan int, 1)
	go func() {
		n := 1
		for lines.Scan() {
			n++
		}
		pauses <- n
	}()
	// Those accepted leave; everyone still in the accept queue must be served now.
	for _, c := range conns[:30] {
		_ = c.Close()
	}
	began := time.Now()
	for i, c := range conns[30:] {
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatalf("connection %d was not served after descriptors came free: %v", 30+i, err)
		}
		_ = c.Close()
	}
	_ = in.Close()
	_ = cmd.Wait()
	if n, most := <-pauses, 3+int(time.Since(began)/acceptPause)*2; n > most {
		t.Errorf("pauses: got %d in %v, want at most %d (no spinning)", n, time.Since(began), most)
	}
}

func TestUnixSocketApp(t *testing.T) {
	loop, err := NewLoop(Config{})
	if err != nil {
		t.Fatal(err)
	}
	go loop.Run()
	defer loop.Close()
	path := t.TempDir() + "/app.sock"
	app, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = app.Close() }()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	w := newWatcher()
	loop.Do(func() {
		k, err := loop.Attach(int32(pair[0]), w)
		if err != nil {
			t.Error(err)
			return
		}
		k.Dial(Target{Path: path})
	})
	f := os.NewFile(uintptr(pair[1]), "client")
	client, err := net.FileConn(f)
	_ = f.Close()
	if err != nil {
		t.Fatal(err)
	}
	a, err := app.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Write([]byte("ping")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4)
	if _, err := io.ReadFull(a, got); err != nil || string(got) != "ping" {
		t.Errorf("app: got %q (%v), want %q", got, err, "ping")
	}
	_, _ = client.Close(), a.Close()
	await(t, w.closed, "the link's end")
}
