package load_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/lastcall-proxy/lastcall/bench/load"
)

// A slow body comes over the time that was asked for, be it a few bytes or more than any buffer holds.
func TestSlowUpload(t *testing.T) {
	for _, kind := range []string{"http1", "http1-new", "http2"} {
		for _, size := range []string{"7", "1000", "4000000"} {
			got := drive(t, kind+"="+startApp(t).HTTPAddr+",rate=10,conns=20,over=300ms,size="+size, load.Never, 600*time.Millisecond, nil)
			if got.Failed != 0 || got.P50 < 300*time.Millisecond || got.P50 > 900*time.Millisecond {
				t.Errorf("%s, %s bytes: p50 %v, outcomes %v", kind, size, got.P50, got.Outcomes)
			}
		}
	}
}

// Who resumes misses nothing where the server goes on behind the last event, and sees what it missed where it doesn't.
func TestResume(t *testing.T) {
	for name, skips := range map[string]int{"the server goes on": 0, "the server has gone on without us": 5} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				n, err := strconv.Atoi(r.Header.Get("Last-Event-ID"))
				if n++; err == nil {
					n += skips
				}
				out := http.NewResponseController(w)
				for i := 0; r.Context().Err() == nil; i++ {
					if err != nil && i == 20 {
						panic(http.ErrAbortHandler)
					}
					_, _ = fmt.Fprintf(w, "id: %d\ndata: x\n\n", n+i)
					_ = out.Flush()
					time.Sleep(5 * time.Millisecond)
				}
			}))
			defer srv.Close()
			got := drive(t, "sse="+srv.URL+",sessions=1,resume=true", load.Naive, time.Second, nil)
			if got.Reconnected != 1 || got.Messages.Received < 25 || got.Messages.Duplicated != 0 || got.Messages.Lost != uint64(skips) || got.Outcomes[load.MessageLost] != uint64(skips) {
				t.Errorf("%+v", got)
			}
		})
	}
}

// Who is broken off inside an event has not had it: the id that came is not the one to come back with.
func TestResumeInsideAnEvent(t *testing.T) {
	asked := make(chan string, 100)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Header.Get("Last-Event-ID")
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "id: 1\ndata: x\n\nid: 2\ndata: x\n\nid: 3\ndata: x\n")
	}))
	defer srv.Close()
	drive(t, "sse="+srv.URL+",sessions=1,resume=true", load.Naive, 300*time.Millisecond, nil)
	if first, second := <-asked, <-asked; first != "" || second != "2" {
		t.Errorf("asked with %q, then with %q", first, second)
	}
}

// A server whose count is too low has lost something, and one whose count is too high has taken something twice.
func TestUploadCount(t *testing.T) {
	for name, tt := range map[string]struct {
		off  int
		want load.Outcome
	}{"two too few": {-2, load.MessageLost}, "two too many": {2, load.MessageTwice}} {
		t.Run(name, func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			srv := grpc.NewServer(grpc.ForceServerCodecV2(load.Raw{}), grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
				for n := 0; ; n++ {
					var b []byte
					if err := s.RecvMsg(&b); errors.Is(err, io.EOF) {
						b = binary.BigEndian.AppendUint64(nil, uint64(n+tt.off))
						return s.SendMsg(&b)
					} else if err != nil {
						return err
					}
				}
			}))
			go func() { _ = srv.Serve(ln) }()
			defer srv.Stop()
			got := drive(t, "grpc-stream="+ln.Addr().String()+",sessions=1,interval=10ms,mode=client", load.Never, 300*time.Millisecond, nil)
			if got.Outcomes[tt.want] == 0 || got.Messages.Lost+got.Messages.Duplicated != 2 {
				t.Errorf("%v, %+v", got.Outcomes, got.Messages)
			}
		})
	}
}

// An answer that is no event stream is not waited at for events.
func TestNoEventStream(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "hello")
	}))
	defer srv.Close()
	got := drive(t, "sse="+srv.URL+",sessions=1", load.Never, time.Second, nil)
	if len(got.Entries) != 1 || got.Entries[0].Outcome != load.Protocol || got.Entries[0].Wire != `an answer of type "text/plain", no event stream` {
		t.Errorf("%+v", got.Entries)
	}
}

// A line without an end is an end of its own.
func TestEndlessLine(t *testing.T) {
	if testing.Short() {
		t.Skip("sends 200 MB")
	}
	line := bytes.Repeat([]byte("x"), 1<<20)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for r.Context().Err() == nil {
			if _, err := w.Write(line); err != nil {
				return
			}
		}
	}))
	defer srv.Close()
	got := drive(t, "sse="+srv.URL+",sessions=1,interval=1m,timeout=20s", load.Never, 20*time.Second, nil)
	if got.Outcomes[load.Protocol] != 1 || got.Sessions != 0 {
		t.Errorf("%v, %d sessions", got.Outcomes, got.Sessions)
	}
}
