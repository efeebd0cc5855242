package main

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// hostile is one way of being a bad client: it is called again and again.
type hostile func(c net.Conn, end time.Time)

var hostiles = map[string]hostile{
	"slowloris": func(c net.Conn, end time.Time) {
		for i := 0; time.Now().Before(end); i++ {
			if _, err := c.Write([]byte("GET / HTTP/1.1\r\nHost: h\r\nX-Slow: aaaaaaaaaaaaaaaaaaaaaaaaaaa")[i%60 : i%60+1]); err != nil {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	},
	"one byte writes": func(c net.Conn, _ time.Time) {
		for _, b := range []byte("GET /fast HTTP/1.1\r\nHost: h\r\n\r\n") {
			_, _ = c.Write([]byte{b})
		}
		listen(c)
	},
	"100 KB header": func(c net.Conn, _ time.Time) {
		_, _ = io.WriteString(c, "GET /fast HTTP/1.1\r\nHost: h\r\nX: "+strings.Repeat("a", 100_000)+"\r\n\r\n")
		listen(c)
	},
	"garbage behind a request": func(c net.Conn, _ time.Time) {
		_, _ = c.Write(append([]byte("GET /fast HTTP/1.1\r\nHost: h\r\n\r\n"), noise(3000)...))
		listen(c)
	},
	"garbage": func(c net.Conn, _ time.Time) {
		_, _ = c.Write(noise(1 + rand.IntN(5000)))
		listen(c)
	},
	"silence": func(net.Conn, time.Time) { time.Sleep(200 * time.Millisecond) },
	"RST storm": func(c net.Conn, _ time.Time) {
		_, _ = io.WriteString(c, "GET /fast HTTP/1.1\r\n")
		_ = c.(*net.TCPConn).SetLinger(0)
	},
	"upload to nobody": func(c net.Conn, _ time.Time) {
		_, _ = io.WriteString(c, "POST /fast HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n")
		_, _ = c.Write(noise(20_000))
	},
	"never reads": func(c net.Conn, _ time.Time) {
		for range 200 {
			if _, err := io.WriteString(c, "GET /fast HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
				return
			}
		}
		time.Sleep(50 * time.Millisecond)
	},
}

func listen(c net.Conn) {
	_ = c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	_, _ = c.Read(make([]byte, 4096))
}

func noise(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return b
}

// Bad clients of every sort at once, with descriptors to spare and with hardly any: nothing falls over, good clients are
// served, memory stays where it was, and the books balance. LASTCALL_HOSTILE=60s makes it last.
func TestHostilePeers(t *testing.T) {
	last := 3 * time.Second
	if d, err := time.ParseDuration(os.Getenv("LASTCALL_HOSTILE")); err == nil {
		last = d
	}
	for _, limit := range []int{4096, 120} {
		t.Run(strconv.Itoa(limit)+" descriptors", func(t *testing.T) {
			app, err := startDemoApp(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer app.stop()
			t.Setenv(descriptors, strconv.Itoa(limit))
			p, addr := front(t, app.http.Addr().String(), "--lameduck", "200ms", "--drain-timeout", "3s", "--max-connections", "100000")
			end := time.Now().Add(last)
			var wg sync.WaitGroup
			var tries, served, refused atomic.Int64
			for _, f := range hostiles {
				for range 8 {
					wg.Go(func() {
						for time.Now().Before(end) {
							c, err := net.DialTimeout("tcp", addr, time.Second)
							if err != nil {
								continue
							}
							tries.Add(1)
							f(c, end)
							_ = c.Close()
						}
					})
				}
			}
			good := &http.Client{Timeout: 5 * time.Second}
			wg.Go(func() {
				for time.Now().Before(end) {
					res, err := good.Get("http://" + addr + "/fast")
					if err != nil {
						refused.Add(1) // no descriptor for its app connection, or its turn in the queue did not come
						continue
					}
					if b, err := io.ReadAll(res.Body); err == nil && string(b) == "fast\n" {
						served.Add(1)
					}
					_ = res.Body.Close()
					time.Sleep(5 * time.Millisecond)
				}
			})
			wg.Wait()
			good.CloseIdleConnections()
			t.Logf("%d hostile connections; of the good client's requests %d were served, %d were not", tries.Load(), served.Load(), refused.Load())
			if served.Load() == 0 || limit > 1000 && refused.Load() > 0 {
				t.Errorf("the good client: %d served, %d not", served.Load(), refused.Load())
			}
			for began := time.Now(); ; pause(t.Context(), 50*time.Millisecond) { // what the kernel still holds is accepted and seen to its end
				if m := p.scrape(t); m["lastcall_connections_open"] == 0 {
					break
				}
				if time.Since(began) > 10*time.Second {
					t.Fatalf("still open: %v", p.scrape(t)["lastcall_connections_open"])
				}
			}
			if err := p.scrape(t).balance(); err != nil {
				t.Error(err)
			}
			if peak := p.peakKB(t); peak > 200<<10 {
				t.Errorf("resident at its peak: %d KB", peak)
			} else {
				t.Logf("resident at its peak: %d KB", peak)
			}
			if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if err := p.cmd.Wait(); err != nil {
				t.Errorf("exit: %v", err)
			}
		})
	}
}

// peakKB is the process's VmHWM.
func (p *process) peakKB(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/" + strconv.Itoa(p.cmd.Process.Pid) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(b, []byte("VmHWM:"))
	n, _ := strconv.Atoi(strings.Fields(string(rest))[0])
	return n
}
