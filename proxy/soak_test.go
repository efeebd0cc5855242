package proxy_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/lastcall-proxy/lastcall/tracker"
	"github.com/lastcall-proxy/lastcall/tracker/trackertest"
)

func descriptors(t *testing.T) int {
	t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(d)
}

// Ten lives of a server, each with connections of every kind that end in every way, leave no goroutine and no descriptor.
func TestTenLivesLeakNothing(t *testing.T) {
	life := func(t *testing.T) {
		w := newWorld(t)
		mux := http.NewServeMux()
		mux.HandleFunc("/hello", hello)
		mux.HandleFunc("/never", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		w.serve(t, mux)
		var ready, all sync.WaitGroup
		for i := range 60 {
			ready.Add(1)
			all.Go(func() {
				up := sync.OnceFunc(ready.Done)
				defer up()
				c, err := net.Dial("tcp", w.addr)
				if err != nil {
					t.Error(err)
					return
				}
				defer func() { _ = c.Close() }()
				_ = c.SetDeadline(time.Now().Add(20 * time.Second))
				switch i % 4 {
				case 0: // in flight until it is cut
					_, _ = io.WriteString(c, "GET /never HTTP/1.1\r\nHost: h\r\n\r\n")
					up()
				case 1: // idle
					_, _ = io.WriteString(c, "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n")
					if res, err := http.ReadResponse(bufio.NewReader(c), nil); err == nil {
						_ = res.Body.Close()
					}
					up()
				case 2: // half a request, then a reset
					_, _ = io.WriteString(c, "GET /hel")
					tc, _ := c.(*net.TCPConn)
					_ = tc.SetLinger(0)
					return
				case 3: // silent
					up()
				}
				_, _ = io.Copy(io.Discard, c)
			})
		}
		ready.Wait()
		w.reg.BeginDrain("test", w.reg.Now(), w.reg.Now()+int64(time.Minute))
		w.srv.Farewell()
		w.srv.Reject(false)
		w.srv.Cut()
		_ = w.srv.CloseConn(1<<40, false) // asks every loop, and so waits for the cut
		w.srv.Cut()
		all.Wait()
		trackertest.WaitFor(t, w.reg, func(r *tracker.Registry) bool {
			n := r.Counts()
			_, open, _ := n.Sum(tracker.WhatConnection)
			if open > 0 {
				w.srv.Cut() // those that were still in the accept queue
			}
			return open == 0
		})
	}
	t.Run("warm-up", life)
	goroutines, fds := runtime.NumGoroutine(), descriptors(t)
	for range 10 {
		t.Run("life", life)
	}
	for began := time.Now(); runtime.NumGoroutine() > goroutines || descriptors(t) > fds; {
		if time.Since(began) > 5*time.Second {
			buf := make([]byte, 64<<10)
			t.Fatalf("after ten lives: %d goroutines (before: %d), %d descriptors (before: %d)\n%s", runtime.NumGoroutine(), goroutines, descriptors(t), fds, buf[:runtime.Stack(buf, true)])
		}
		runtime.Gosched()
	}
}
