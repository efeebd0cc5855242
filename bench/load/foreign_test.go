package load_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coder/websocket"

	"github.com/lastcall-proxy/lastcall/bench/load"
)

// What other people's servers send as server-sent events is no fault for having no numbers of ours.
func TestForeignEvents(t *testing.T) {
	for name, tt := range map[string]struct {
		event func(i int) string
		fault load.Outcome
	}{
		"ids on some":   {event: func(i int) string { return []string{"id: " + strconv.Itoa(i/2) + "\n", ""}[i%2] + "data: x\n\n" }},
		"times as ids":  {event: func(i int) string { return fmt.Sprintf("id: %d\ndata: x\n\n", 1700000000000+37*i) }},
		"downwards":     {event: func(i int) string { return fmt.Sprintf("id: %d\ndata: x\n\n", 1000-i) }},
		"CR alone":      {event: func(i int) string { return fmt.Sprintf("id: %d\rdata: x\r\r", i) }},
		"CRLF":          {event: func(i int) string { return fmt.Sprintf("id: %d\r\ndata: x\r\n\r\n", i) }},
		"words":         {event: func(i int) string { return fmt.Sprintf("id: e-%d\nevent: y\ndata: x\ndata: y\n\n", i) }},
		"one is lost":   {event: func(i int) string { return fmt.Sprintf("id: %d\ndata: x\n\n", i+i/5) }, fault: load.MessageLost},
		"one more time": {event: func(i int) string { return fmt.Sprintf("id: %d\ndata: x\n\n", i-i/5) }, fault: load.MessageTwice},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
				for i := 0; r.Context().Err() == nil && i < 10; i++ {
					_, _ = io.WriteString(w, tt.event(i))
					_ = http.NewResponseController(w).Flush()
				}
				<-r.Context().Done()
			}))
			defer srv.Close()
			got := drive(t, "sse="+srv.URL+",sessions=1", load.Never, 300*time.Millisecond, nil)
			switch {
			case got.Messages.Received != 10 || got.Failed != 0 || (got.Faults == 0) != (tt.fault == ""):
				t.Errorf("%+v", got)
			case tt.fault != "" && got.Outcomes[tt.fault] != 1:
				t.Errorf("%v, want one %s", got.Outcomes, tt.fault)
			}
		})
	}
}

// A stream that is kept alive by comments is not silent, one without them is.
func TestCommentsAreHeard(t *testing.T) {
	for name, comment := range map[string]string{"comments": ": still here\n\n", "nothing": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, "data: 1\n\n")
				_ = http.NewResponseController(w).Flush()
				time.Sleep(10 * time.Millisecond)
				_, _ = io.WriteString(w, "data: 2\n\n")
				for r.Context().Err() == nil {
					_, _ = io.WriteString(w, comment)
					_ = http.NewResponseController(w).Flush()
					time.Sleep(20 * time.Millisecond)
				}
			}))
			defer srv.Close()
			got := drive(t, "sse="+srv.URL+",sessions=1,timeout=200ms", load.Never, time.Second, nil)
			if timeout := got.Outcomes[load.Timeout] > 0; timeout != (comment == "") {
				t.Errorf("%v", got.Outcomes)
			}
		})
	}
}

// An answer to what nobody has sent is a wrong one, however great its number; the message that had none is lost.
func TestAnswerToNothing(t *testing.T) {
	for _, number := range []uint64{1 << 20, 1<<64 - 1} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c, err := websocket.Accept(w, r, nil)
			if err != nil {
				return
			}
			defer func() { _ = c.CloseNow() }()
			for i := 0; ; i++ {
				_, b, err := c.Read(r.Context())
				if err != nil {
					return
				}
				if i == 3 {
					b = binary.BigEndian.AppendUint64(nil, number)
				}
				if c.Write(r.Context(), websocket.MessageBinary, b) != nil {
					return
				}
			}
		}))
		got := drive(t, "websocket="+srv.URL+",sessions=1,interval=10ms", load.Never, 300*time.Millisecond, nil)
		srv.Close()
		if got.Outcomes[load.Wrong] != 1 || got.Outcomes[load.MessageLost] != 1 || got.Messages.Lost != 1 || got.Messages.Sent != got.Messages.Received+1 || got.Faults != 2 {
			t.Errorf("%d: %v, %+v", number, got.Outcomes, got.Messages)
		}
	}
}

// A WebSocket that its server closes with a code that tells of a fault had no goodbye.
func TestCloseCodes(t *testing.T) {
	for code, want := range map[websocket.StatusCode]load.Outcome{
		1000: load.Told, 1001: load.Told, 1012: load.Told, 1013: load.Told, 4999: load.Told,
		1002: load.Status, 1003: load.Status, 1007: load.Status, 1008: load.Status, 1009: load.Status, 1011: load.Status,
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c, err := websocket.Accept(w, r, nil)
			if err != nil {
				return
			}
			_, b, err := c.Read(r.Context())
			if err != nil || c.Write(r.Context(), websocket.MessageBinary, b) != nil {
				return
			}
			_ = c.Close(code, "")
		}))
		got := drive(t, "websocket="+srv.URL+",sessions=1", load.Never, time.Second, nil)
		srv.Close()
		if got.Outcomes[want] != 1 || got.Attempted != 1 || got.Succeeded+got.Failed != 1 {
			t.Errorf("%d: %v", code, got.Outcomes)
		}
	}
}

// A goodbye before the first answer is a refusal, and the books add up.
func TestGoodbyeBeforeWelcome(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, err := websocket.Accept(w, r, nil); err == nil {
			_ = c.Close(1013, "")
		}
	}))
	defer srv.Close()
	got := drive(t, "websocket="+srv.URL+",sessions=1", load.Naive, 300*time.Millisecond, nil)
	if got.Sessions != 0 || got.Failed == 0 || got.Attempted != got.Failed || got.Outcomes[load.Closed] != got.Failed {
		t.Errorf("%+v", got)
	}
}

// A GOAWAY that leaves a stream out refuses it, also when the server closes nothing.
func TestGoAwayRefuses(t *testing.T) {
	addr := accepting(t, func(c net.Conn) {
		_, _ = io.ReadFull(c, make([]byte, len(http2.ClientPreface)))
		f := http2.NewFramer(c, c)
		_ = f.WriteSettings()
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			if _, ok := frame.(*http2.HeadersFrame); ok {
				_ = f.WriteGoAway(0, http2.ErrCodeNo, nil)
			}
		}
	})
	for _, kind := range []string{"http2", "grpc-unary"} {
		got := drive(t, kind+"="+addr+",rate=20,conns=2,timeout=1s", load.Never, 300*time.Millisecond, nil)
		if got.Attempted == 0 || got.Outcomes[load.StreamRefused] != got.Attempted {
			t.Errorf("%s: %v", kind, got.Outcomes)
		}
	}
}

// What a server says in trailers is its own word, whatever it sounds like, and fit to be shown.
func TestServersWords(t *testing.T) {
	for _, tt := range []struct {
		code codes.Code
		text string
	}{
		{codes.Internal, "dial tcp 10.0.0.1:80: connect: connection refused"}, {codes.Unknown, "read: connection reset by peer"},
		{codes.DeadlineExceeded, "x"}, {codes.Unavailable, "the connection is draining"}, {codes.Internal, "\x1b[2J\nPROVEN: all fine"},
	} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		srv := grpc.NewServer(grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error { return status.Error(tt.code, tt.text) }))
		go func() { _ = srv.Serve(ln) }()
		got := drive(t, "grpc-unary="+ln.Addr().String()+",rate=20,conns=1", load.Never, 200*time.Millisecond, nil)
		srv.Stop()
		if got.Outcomes[load.GRPCStatus] != got.Attempted || got.Attempted == 0 {
			t.Errorf("%s: %v", tt.text, got.Outcomes)
		}
		if w := got.Entries[0].Wire; strings.ContainsAny(w, "\x1b\n") || !strings.Contains(w, fmt.Sprint(int(tt.code))) {
			t.Errorf("%q", w)
		}
	}
}

// Sessions whose server falls silent under them are broken off, too: they were open, and what they owe is owed.
func TestAbortSessions(t *testing.T) {
	a := startApp(t)
	for _, spec := range []string{"websocket=ws://" + a.HTTPAddr + "/ws?silent=5,sessions=3,interval=10ms,timeout=5m", "tcp=" + a.TCPAddr + ",sessions=3,interval=10ms,timeout=5m", "sse=" + a.HTTPAddr + "/events?every=10ms,sessions=3,interval=10ms,timeout=5m", "grpc-stream=" + a.HTTPAddr + ",sessions=3,interval=10ms,timeout=5m"} {
		s, err := load.ParseSpec(spec)
		if err != nil {
			t.Fatal(err)
		}
		d, err := load.New(s, load.Naive, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { d.Run(ctx); close(done) }()
		time.Sleep(300 * time.Millisecond)
		cancel()
		d.Abort()
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			t.Fatal("it runs on")
		}
		got := d.Account()
		booksAdd(t, got)
		if got.Sessions != 3 || got.Failed != 0 || got.Messages.Lost != 0 || got.Attempted != 3 {
			t.Errorf("%s: %+v", s.Kind, got)
		}
	}
}

// A channel on which nobody says anything is a session all the same; one that ends before it has said anything is none.
func TestQuietChannels(t *testing.T) {
	for name, tt := range map[string]struct {
		stays time.Duration
		good  bool
	}{"quiet": {time.Minute, true}, "gone": {10 * time.Millisecond, false}} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Upgrade") == "" {
				w.Header().Set("Content-Type", "text/event-stream")
				_ = http.NewResponseController(w).Flush()
			} else if c, err := websocket.Accept(w, r, nil); err == nil {
				defer func() { _ = c.Close(websocket.StatusGoingAway, "") }()
				r = r.WithContext(c.CloseRead(r.Context()))
			}
			select {
			case <-r.Context().Done():
			case <-time.After(tt.stays):
			}
		}))
		for _, spec := range []string{"sse=" + srv.URL + ",sessions=1,interval=100ms", "websocket=" + srv.URL + ",sessions=1,interval=100ms,mode=push"} {
			got := drive(t, spec, load.Never, 400*time.Millisecond, nil)
			if tt.good && (got.Sessions != 1 || got.Outcomes[load.OK] != 1 || got.Failed != 0) || !tt.good && (got.Sessions != 0 || got.Failed != 1) {
				t.Errorf("%s, %s: %+v", name, got.Spec.Kind, got)
			}
		}
		srv.Close()
	}
}

// Abort leaves nothing behind, and what it breaks off never was.
func TestAbort(t *testing.T) {
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	addr := accepting(t, func(net.Conn) { <-over })
	for _, kind := range load.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			s, err := load.ParseSpec(string(kind) + "=" + addr + ",timeout=5m")
			if err != nil {
				t.Fatal(err)
			}
			d, err := load.New(s, load.Naive, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { d.Run(ctx); close(done) }()
			for d.Account().Connections.Opened == 0 {
				time.Sleep(time.Millisecond)
			}
			cancel()
			d.Abort()
			select {
			case <-done:
			case <-time.After(10 * time.Second):
				t.Fatal("it runs on")
			}
			a := d.Account()
			booksAdd(t, a)
			if a.Failed != 0 || a.Messages.Lost != 0 {
				t.Errorf("%+v", a)
			}
		})
	}
}
