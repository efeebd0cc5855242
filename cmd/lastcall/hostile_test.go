package main

import (
	"bufio"
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

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
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

// h2 makes a hostile client that speaks HTTP/2 as far as f lets it.
func h2(f func(fr *http2.Framer, block func(...string) []byte, end time.Time)) hostile {
	return func(c net.Conn, end time.Time) {
		_ = c.SetDeadline(time.Now().Add(3 * time.Second))
		w := bufio.NewWriter(c)
		defer func() { _ = w.Flush() }()
		_, _ = io.WriteString(w, http2.ClientPreface)
		fr := http2.NewFramer(w, nil)
		fr.AllowIllegalWrites = true
		_ = fr.WriteSettings()
		go func() { _, _ = io.Copy(io.Discard, c) }()
		var buf bytes.Buffer
		enc := hpack.NewEncoder(&buf)
		f(fr, func(kv ...string) []byte {
			buf.Reset()
			for i := 0; i < len(kv); i += 2 {
				_ = enc.WriteField(hpack.HeaderField{Name: kv[i], Value: kv[i+1]})
			}
			return bytes.Clone(buf.Bytes())
		}, end)
	}
}

var getFast = []string{":method", "GET", ":path", "/fast", ":scheme", "http", ":authority", "h"}

// hostileHTTP2 are the attacks that HTTP/2 is known for.
var hostileHTTP2 = map[string]hostile{
	"rapid reset": h2(func(fr *http2.Framer, block func(...string) []byte, _ time.Time) {
		for id := uint32(1); id < 4000; id += 2 {
			if fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block(getFast...), EndHeaders: true, EndStream: true}) != nil || fr.WriteRSTStream(id, http2.ErrCodeCancel) != nil {
				return
			}
		}
	}),
	"CONTINUATION flood": h2(func(fr *http2.Framer, block func(...string) []byte, _ time.Time) {
		_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block(getFast...), EndStream: true})
		for range 5000 {
			if fr.WriteContinuation(1, false, block("x", strings.Repeat("y", 100))) != nil {
				return
			}
		}
	}),
	"SETTINGS flood": h2(func(fr *http2.Framer, _ func(...string) []byte, _ time.Time) {
		for range 20000 {
			if fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: rand.Uint32N(1 << 31)}) != nil {
				return
			}
		}
	}),
	"PING flood": h2(func(fr *http2.Framer, _ func(...string) []byte, _ time.Time) {
		for range 20000 {
			if fr.WritePing(false, [8]byte{1}) != nil {
				return
			}
		}
	}),
	"window overflow": h2(func(fr *http2.Framer, block func(...string) []byte, _ time.Time) {
		_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block(getFast...), EndHeaders: true})
		for range 100 {
			_, _ = fr.WriteWindowUpdate(0, 1<<31-1), fr.WriteWindowUpdate(1, 1<<31-1)
		}
	}),
	"huge table": h2(func(fr *http2.Framer, _ func(...string) []byte, _ time.Time) {
		_ = fr.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: 1<<32 - 1})
		_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x3f, 0xff, 0xff, 0xff, 0x0f}, EndHeaders: true})
	}),
	"garbage behind the preface": h2(func(fr *http2.Framer, _ func(...string) []byte, _ time.Time) {
		_ = fr.WriteRawFrame(http2.FrameType(rand.Uint32()), http2.Flags(rand.Uint32()), rand.Uint32(), noise(2000))
	}),
	"streams without end": h2(func(fr *http2.Framer, block func(...string) []byte, _ time.Time) {
		for id := uint32(1); id < 30000; id += 2 {
			if fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block(getFast...), EndHeaders: true}) != nil {
				return
			}
		}
	}),
	"one byte frames": h2(func(fr *http2.Framer, block func(...string) []byte, _ time.Time) {
		_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block(":method", "POST", ":path", "/fast", ":scheme", "http", ":authority", "h"), EndHeaders: true})
		for range 3000 {
			if fr.WriteData(1, false, []byte{1}) != nil {
				return
			}
		}
	}),
}

// raceEnabled: this program runs under the race detector (race_test.go).
var raceEnabled bool

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
	for name, tt := range map[string]struct {
		limit, each int
		rest        time.Duration // between a peer's connections: HTTP/2 attacks cost the app behind us far more than us, and it shares our cores
		peers       map[string]hostile
	}{"4096 descriptors": {4096, 8, 0, hostiles}, "120 descriptors": {120, 8, 0, hostiles}, "HTTP2": {4096, 1, 200 * time.Millisecond, hostileHTTP2}} {
		t.Run(name, func(t *testing.T) {
			limit := tt.limit
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
			for _, f := range tt.peers {
				for range tt.each {
					wg.Go(func() {
						for time.Now().Before(end) {
							c, err := net.DialTimeout("tcp", addr, time.Second)
							if err != nil {
								continue
							}
							tries.Add(1)
							f(c, end)
							_ = c.Close()
							pause(t.Context(), tt.rest)
						}
					})
				}
			}
			good := &http.Client{Timeout: 20 * time.Second}
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
			most := 200 << 10
			if raceEnabled {
				most *= 5 // the race detector keeps four shadow words for each of the program's
			}
			if peak := p.peakKB(t); peak > most {
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
