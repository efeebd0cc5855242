package relay

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lastcall-proxy/lastcall/proxy/observe"
)

// watcher is an Owner that edits nothing and records what it is told. Its channels are buffered for one connection.
type watcher struct {
	connected chan struct{}
	failed    chan syscall.Errno
	reset     chan observe.Direction
	closed    chan struct{}
	gentle    bool
	edit      func(dir observe.Direction, p []byte) []observe.Edit
}

func newWatcher() *watcher {
	return &watcher{connected: make(chan struct{}, 1), failed: make(chan syscall.Errno, 1), reset: make(chan observe.Direction, 2), closed: make(chan struct{})}
}

func (w *watcher) Connected()                           { w.connected <- struct{}{} }
func (w *watcher) DialFailed(err syscall.Errno, _ bool) { w.failed <- err }
func (w *watcher) EOF(observe.Direction) []observe.Edit { return nil }
func (w *watcher) Blocked(observe.Direction, bool)      {}
func (w *watcher) Closed()                              { close(w.closed) }
func (w *watcher) Reset(d observe.Direction, _ syscall.Errno) bool {
	w.reset <- d
	return w.gentle
}
func (w *watcher) Data(dir observe.Direction, p []byte) []observe.Edit {
	if w.edit == nil {
		return nil
	}
	return w.edit(dir, p)
}

// bench is one loop, a listener on it, and an app to dial.
type bench struct {
	loop *Loop
	addr string
	app  *net.TCPListener
	next chan *watcher // the watcher of the next accepted connection
	link chan *Link
}

func newBench(t *testing.T) *bench {
	t.Helper()
	loop, err := NewLoop(Config{})
	if err != nil {
		t.Fatal(err)
	}
	go loop.Run()
	app, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{loop: loop, app: app, next: make(chan *watcher, 1), link: make(chan *Link, 1)}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(fd, 16)); err != nil {
		t.Fatal(err)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	sa4, _ := sa.(*unix.SockaddrInet4)
	b.addr = netip.AddrPortFrom(netip.AddrFrom4(sa4.Addr), uint16(sa4.Port)).String()
	target := Target{Addr: netip.MustParseAddrPort(app.Addr().String())}
	ln := loop.Listen(fd, func(fd int32, _ netip.AddrPort) {
		w := <-b.next
		k, err := loop.Attach(fd, w)
		if err != nil {
			t.Error(err)
			return
		}
		k.Dial(target)
		b.link <- k
	}, func(syscall.Errno) {})
	t.Cleanup(func() {
		done := make(chan struct{})
		loop.Do(func() { ln.Close(); close(done) })
		<-done
		loop.Close()
		_ = app.Close()
		if n := loop.Links(); n != 0 {
			t.Errorf("links left: got %d, want 0", n)
		}
	})
	return b
}

// pair makes one connection through the relay.
func (b *bench) pair(t *testing.T, w *watcher) (client, app *net.TCPConn, link *Link) {
	t.Helper()
	b.next <- w
	c, err := net.DialTimeout("tcp", b.addr, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	a, err := b.app.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	ct, _ := c.(*net.TCPConn)
	for _, k := range []*net.TCPConn{ct, a} {
		_ = k.SetDeadline(time.Now().Add(20 * time.Second))
	}
	t.Cleanup(func() { _ = ct.Close(); _ = a.Close() })
	return ct, a, <-b.link
}

func await(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(10 * time.Second):
		t.Fatalf("%s did not happen", what)
	}
}

func TestBytesBothWaysAndHalfClose(t *testing.T) {
	b := newBench(t)
	w := newWatcher()
	client, app, _ := b.pair(t, w)
	up, down := make([]byte, 3<<20), make([]byte, 5<<20)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(up)
	_, _ = r.Read(down)
	go func() {
		_, _ = client.Write(up)
		_ = client.CloseWrite()
	}()
	got, err := io.ReadAll(app)
	if err != nil || !bytes.Equal(got, up) {
		t.Fatalf("app got %d bytes (%v), want %d as sent", len(got), err, len(up))
	}
	// The client has half-closed: the other half stays open.
	go func() {
		_, _ = app.Write(down)
		_ = app.Close()
	}()
	got, err = io.ReadAll(client)
	if err != nil || !bytes.Equal(got, down) {
		t.Fatalf("client got %d bytes (%v), want %d as sent", len(got), err, len(down))
	}
	await(t, w.closed, "the link's end")
}

func TestSlowReaderIsBounded(t *testing.T) {
	b := newBench(t)
	w := newWatcher()
	client, app, link := b.pair(t, w)
	const size = 64 << 20
	sum := sha256.New()
	go func() {
		p := make([]byte, 1<<20)
		r := rand.NewChaCha8([32]byte{2})
		for range size / len(p) {
			_, _ = r.Read(p)
			sum.Write(p)
			if _, err := app.Write(p); err != nil {
				return
			}
		}
		_ = app.CloseWrite()
	}()
	got := sha256.New()
	p := make([]byte, 256<<10)
	total := 0
	for {
		n, err := client.Read(p)
		got.Write(p[:n])
		total += n
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		kept := make(chan int, 1)
		b.loop.Do(func() { kept <- cap(link.sides[0].out) })
		if k := <-kept; k > 2*b.loop.cfg.BufferSize {
			t.Fatalf("unsent buffer: got %d bytes, want at most %d", k, 2*b.loop.cfg.BufferSize)
		}
	}
	if total != size || !bytes.Equal(got.Sum(nil), sum.Sum(nil)) {
		t.Fatalf("client got %d bytes, want %d with the same hash", total, size)
	}
	_ = client.Close()
	await(t, w.closed, "the link's end")
}

func TestResetFollowsTheBytesBeforeIt(t *testing.T) {
	for _, from := range []observe.Direction{observe.FromClient, observe.FromApp} {
		t.Run(from.String(), func(t *testing.T) {
			b := newBench(t)
			w := newWatcher()
			client, app, _ := b.pair(t, w)
			src, dst := client, app
			if from == observe.FromApp {
				src, dst = app, client
			}
			msg := bytes.Repeat([]byte("last words "), 2000)
			if _, err := src.Write(msg); err != nil {
				t.Fatal(err)
			}
			await(t, w.connected, "the dial")
			_ = src.SetLinger(0)
			_ = src.Close()
			if got := <-w.reset; got != from {
				t.Errorf("who reset: got %v, want %v", got, from)
			}
			await(t, w.closed, "the link's end") // the RST has left: it must not have overtaken the bytes
			got, err := io.ReadAll(dst)
			if !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("error: got %v, want %v", err, syscall.ECONNRESET)
			}
			if !bytes.HasPrefix(msg, got) || len(got) == 0 {
				t.Errorf("got %d bytes before the reset, want the sender's", len(got))
			}
		})
	}
}

func TestRefusedDialResetsTheClient(t *testing.T) {
	b := newBench(t)
	_ = b.app.Close()
	w := newWatcher()
	b.next <- w
	c, dialErr := net.Dial("tcp", b.addr)
	<-b.link
	if got := <-w.failed; got != syscall.ECONNREFUSED {
		t.Errorf("dial: got %v, want %v", got, syscall.ECONNREFUSED)
	}
	if dialErr != nil { // the reset may win the race against connect's return
		if !errors.Is(dialErr, syscall.ECONNRESET) {
			t.Errorf("client: got %v, want %v", dialErr, syscall.ECONNRESET)
		}
		return
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("client: got %v, want %v", err, syscall.ECONNRESET)
	}
}

func TestEditsGoInAtTheirPlaces(t *testing.T) {
	b := newBench(t)
	w := newWatcher()
	w.edit = func(dir observe.Direction, p []byte) []observe.Edit {
		if dir == observe.FromClient {
			return []observe.Edit{{Dir: dir, Off: 1, Drop: 1, Insert: []byte("X")}, {Dir: dir, Off: 3, Insert: []byte("Y")}, {Dir: observe.FromApp, Insert: []byte("hello")}}
		}
		return nil
	}
	client, app, link := b.pair(t, w)
	if _, err := client.Write([]byte("abcd")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(app, got); err != nil || string(got) != "aXcYd" {
		t.Errorf("app: got %q (%v), want %q", got, err, "aXcYd")
	}
	if _, err := io.ReadFull(client, got); err != nil || string(got) != "hello" {
		t.Errorf("client: got %q (%v), want %q", got, err, "hello")
	}
	// Finish: FIN to both, what they still send is thrown away.
	b.loop.Do(link.Finish)
	for name, c := range map[string]*net.TCPConn{"client": client, "app": app} {
		if rest, err := io.ReadAll(c); err != nil || len(rest) != 0 {
			t.Errorf("%s after Finish: got %q, %v; want a clean end", name, rest, err)
		}
		_ = c.Close()
	}
	await(t, w.closed, "the link's end")
}

// The app answers and resets because it does not want the rest of the upload; the client must get the whole answer.
func TestEarlyAnswerSurvivesTheReset(t *testing.T) {
	b := newBench(t)
	w := newWatcher()
	w.gentle = true
	client, app, _ := b.pair(t, w)
	answer := bytes.Repeat([]byte("413 "), 1000)
	if _, err := client.Write(bytes.Repeat([]byte("u"), 256<<10)); err != nil {
		t.Fatal(err)
	}
	if _, err := app.Write(answer); err != nil {
		t.Fatal(err)
	}
	_ = app.Close() // with unread upload: the kernel sends RST
	go func() {
		p := bytes.Repeat([]byte("u"), 64<<10)
		for range 50 {
			if _, err := client.Write(p); err != nil {
				return
			}
		}
	}()
	got, err := io.ReadAll(client)
	if err != nil || !bytes.Equal(got, answer) {
		t.Errorf("client got %d bytes (%v), want %d and a clean end", len(got), err, len(answer))
	}
	_ = client.Close()
	await(t, w.closed, "the link's end")
}

func TestManyTasksWakeTheLoop(t *testing.T) {
	b := newBench(t)
	const n = 10000
	ran := make(chan int, n)
	for i := range n {
		go b.loop.Do(func() { ran <- i })
	}
	seen := 0
	for seen < n {
		select {
		case <-ran:
			seen++
		case <-time.After(10 * time.Second):
			t.Fatalf("tasks run: got %d, want %d", seen, n)
		}
	}
}
