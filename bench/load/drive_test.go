package load_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/lastcall-proxy/lastcall/bench/app"
	"github.com/lastcall-proxy/lastcall/bench/load"
)

func startApp(t *testing.T) *app.App {
	t.Helper()
	a, err := app.Start(t.Context(), app.Config{HTTP: "127.0.0.1:0", HTTPS: "127.0.0.1:0", TCP: "127.0.0.1:0", TLS: "127.0.0.1:0", Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	return a
}

// drive runs one load for d, and meanwhile what happens.
func drive(t *testing.T, spec string, how load.Reconnect, d time.Duration, happens func()) load.Account {
	t.Helper()
	s, err := load.ParseSpec(spec)
	if err != nil {
		t.Fatal(err)
	}
	drv, err := load.New(s, how, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	done := make(chan struct{})
	go func() { defer close(done); drv.Run(ctx) }()
	if happens != nil {
		happens()
	}
	<-done
	got := drv.Account()
	booksAdd(t, got)
	for _, e := range got.Entries {
		if e.Local != "" && e.Bytes == (load.Bytes{}) {
			t.Errorf("nothing went over the connection of %+v", e)
		}
	}
	return got
}

// booksAdd checks what holds of every account once its load is over.
func booksAdd(t *testing.T, a load.Account) {
	t.Helper()
	var begun, ends uint64
	for _, p := range a.Line {
		begun += uint64(p.Begun)
	}
	for _, n := range a.Outcomes {
		ends += n
	}
	if a.Attempted != a.Succeeded+a.Failed || begun != a.Attempted || ends != a.Attempted+a.Faults+a.Outcomes[load.RetriedLibrary] || a.Gaps != 0 {
		t.Errorf("%s: %d attempted, %d succeeded, %d failed, %d faults, %d gaps; %d begun in the timeline; outcomes %v", a.Spec.Kind, a.Attempted, a.Succeeded, a.Failed, a.Faults, a.Gaps, begun, a.Outcomes)
	}
}

// sort is a load as it is driven against an app: a kind, with what may vary.
type sort struct {
	name string
	kind load.Kind
	spec string
}

func sorts(a *app.App) (out []sort) {
	for _, secure := range []bool{false, true} {
		h, tcp, ws, tls, also := a.HTTPAddr, a.TCPAddr, "ws://"+a.HTTPAddr, "", ""
		if secure {
			h, tcp, ws, tls, also = "https://"+a.HTTPSAddr, "tls://"+a.TLSAddr, "wss://"+a.HTTPSAddr, " over TLS", ",insecure=true"
		}
		add := func(name, spec string) {
			kind, _, _ := strings.Cut(spec, "=")
			out = append(out, sort{name + tls, load.Kind(kind), spec + also})
		}
		add("http1", "http1="+h+",rate=200,conns=5")
		add("http1 upload", "http1="+h+",rate=100,conns=5,size=100000")
		add("http1 slow upload", "http1="+h+",rate=20,conns=10,size=1000,over=100ms")
		add("http1-new", "http1-new="+h+",rate=100")
		add("http2", "http2="+h+",rate=200,conns=3")
		add("http2 slow upload", "http2="+h+",rate=20,conns=10,size=1000,over=100ms")
		add("grpc-unary", "grpc-unary="+strings.Replace(h, "https", "grpcs", 1)+",rate=200,conns=3")
		for _, mode := range []string{"bidi", "server", "client"} {
			add("grpc-stream "+mode, "grpc-stream="+h+",sessions=5,interval=10ms,mode="+mode)
		}
		add("websocket", "websocket="+ws+"/ws,sessions=5,interval=10ms")
		add("websocket push", "websocket="+ws+"/ws?every=10ms,sessions=5,interval=50ms,mode=push")
		add("sse", "sse="+h+"/events?every=10ms,sessions=5,interval=50ms")
		add("tcp", "tcp="+tcp+",sessions=5,interval=10ms")
	}
	return out
}

// Where nothing is wrong, nothing is found, and the client's numbers are the app's.
func TestNothingWrong(t *testing.T) {
	for i := range sorts(startApp(t)) {
		a := startApp(t)
		tt := sorts(a)[i]
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := drive(t, tt.spec, load.Never, 600*time.Millisecond, nil)
			if got.Failed != 0 || got.Attempted == 0 || got.Succeeded != got.Attempted || got.Messages.Lost+got.Messages.Duplicated+got.Messages.Reordered+got.Messages.Unanswered != 0 {
				t.Errorf("account: %+v", got)
			}
			c := a.Ledger()[strings.TrimSuffix(string(tt.kind), "-new")]
			if !tt.kind.Long() {
				if c.Begun != got.Attempted || c.Whole != got.Succeeded || c.Broken != 0 {
					t.Errorf("requests: the client's %d and %d, the app's %+v", got.Attempted, got.Succeeded, c)
				}
				return
			}
			m := got.Messages
			if got.Sessions != 5 || c.Begun != 5 || m.Received == 0 || m.Sent != m.Received {
				t.Errorf("sessions and messages: the client's %d, %+v, the app's %+v", got.Sessions, m, c)
			}
			switch {
			case tt.kind == load.TCP: // bytes are all that it counts
			case strings.Contains(tt.name, "client"):
				if c.Received != m.Sent || c.Sent != 5 {
					t.Errorf("uploads: the client's %+v, the app's %+v", m, c)
				}
			case strings.Contains(tt.name, "push"), strings.Contains(tt.name, "server"), tt.kind == load.SSE: // the last may be under way, or not booked yet, when the client leaves
				if c.Received != 0 || c.Sent+5 < m.Received || c.Sent > m.Received+2*5 {
					t.Errorf("pushes: the client's %+v, the app's %+v", m, c)
				}
			case c.Received != m.Sent || c.Sent != m.Received:
				t.Errorf("messages: the client's %+v, the app's %+v", m, c)
			}
			if n := got.Connections; n.Refused != 0 || n.Opened == 0 || tt.kind == load.HTTP1New && n.Opened != got.Attempted || tt.kind.Long() && n.Opened != 5 {
				t.Errorf("connections: %+v", n)
			}
		})
	}
}

// One planted fault is one finding, by its name.
func TestPlantedFaults(t *testing.T) {
	for name, tt := range map[string]struct {
		spec func(a *app.App) string
		want load.Outcome
	}{
		"http1 duplicate": {func(a *app.App) string { return "http1=" + a.HTTPAddr + "/?plant=duplicate,rate=100,conns=2" }, load.Wrong},
		"http1 reset":     {func(a *app.App) string { return "http1=" + a.HTTPAddr + "/?plant=reset,rate=100,conns=2" }, load.Reset},
		"http1 truncated": {func(a *app.App) string { return "http1=" + a.HTTPAddr + "/?plant=truncate,rate=100,conns=2" }, load.Truncated},
		"http1 close":     {func(a *app.App) string { return "http1-new=" + a.HTTPAddr + "/?plant=close,rate=100,conns=2" }, load.Closed},
		"http1 silent": {func(a *app.App) string {
			return "http1=" + a.HTTPAddr + "/?plant=silent,rate=100,conns=2,timeout=300ms"
		}, load.Timeout},
		"websocket lost": {func(a *app.App) string {
			return "websocket=ws://" + a.HTTPAddr + "/ws?lose=5,sessions=3,interval=10ms,timeout=1s"
		}, load.MessageLost},
		"websocket twice": {func(a *app.App) string {
			return "websocket=ws://" + a.HTTPAddr + "/ws?duplicate=5,sessions=3,interval=10ms"
		}, load.MessageTwice},
		"websocket mute": {func(a *app.App) string {
			return "websocket=ws://" + a.HTTPAddr + "/ws?silent=5,sessions=3,interval=10ms,timeout=300ms"
		}, load.Timeout},
		"websocket reset": {func(a *app.App) string {
			return "websocket=ws://" + a.HTTPAddr + "/ws?reset=5,sessions=3,interval=10ms"
		}, load.Closed},
		"sse lost":  {func(a *app.App) string { return "sse=" + a.HTTPAddr + "/events?every=10ms&lose=5,sessions=3" }, load.MessageLost},
		"sse twice": {func(a *app.App) string { return "sse=" + a.HTTPAddr + "/events?every=10ms&duplicate=5,sessions=3" }, load.MessageTwice},
		"sse mute": {func(a *app.App) string {
			return "sse=" + a.HTTPAddr + "/events?every=10ms&silent=5,sessions=3,interval=20ms,timeout=200ms"
		}, load.Timeout},
		"sse broken off": {func(a *app.App) string { return "sse=" + a.HTTPAddr + "/events?every=10ms&reset=5,sessions=3" }, load.Truncated},
	} {
		t.Run(name, func(t *testing.T) {
			got := drive(t, tt.spec(startApp(t)), load.Never, 800*time.Millisecond, nil)
			if got.Failed+got.Faults != 1 || got.Outcomes[tt.want] != 1 || len(got.Entries) != 1 || got.Entries[0].Outcome != tt.want || got.Entries[0].Local == "" {
				t.Errorf("want one %s; got outcomes %v, entries %+v", tt.want, got.Outcomes, got.Entries)
			}
		})
	}
}

// An app with manners: sessions are told, and nobody is broken off.
func TestAppDrains(t *testing.T) {
	for i, tt := range sorts(startApp(t)) {
		if !tt.kind.Long() {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a := startApp(t)
			got := drive(t, sorts(a)[i].spec, load.Never, 2*time.Second, func() { time.Sleep(300 * time.Millisecond); a.Drain() })
			told := got.Outcomes[load.Told]
			if tt.kind == load.TCP { // FIN is all that raw TCP can say: a message that crosses it has no answer
				told += got.Outcomes[load.Closed]
			}
			if told != 5 || tt.kind != load.TCP && got.Failed != 0 {
				t.Errorf("outcomes %v, entries %+v", got.Outcomes, got.Entries)
			}
		})
	}
}

// An app without: everybody is broken off, and comes back or not as asked.
func TestAppGoes(t *testing.T) {
	for how, back := range map[load.Reconnect]bool{load.Never: false, load.Naive: true, load.Backoff: true} {
		t.Run(string(how), func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				out := http.NewResponseController(w)
				for range 20 {
					_, _ = w.Write([]byte("data: x\n\n"))
					_ = out.Flush()
					time.Sleep(5 * time.Millisecond)
				}
				panic(http.ErrAbortHandler)
			}))
			defer srv.Close()
			got := drive(t, "sse="+srv.URL+",sessions=2", how, 900*time.Millisecond, nil)
			if got.Outcomes[load.Truncated] < 2 || (got.Reconnected > 0) != back || len(got.Returns) != got.Reconnected {
				t.Errorf("account: %+v", got)
			}
		})
	}
}

// A stall of the app is seen by every request that was due meanwhile, and is no error.
func TestStallIsLatency(t *testing.T) {
	stall := make(chan struct{})
	stalled := make(chan struct{}, 10_000)
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		stalled <- struct{}{}
		<-stall
	}))
	defer srv.Close()
	got := drive(t, "http1="+srv.URL+",rate=100,conns=5", load.Never, 1500*time.Millisecond, func() {
		<-stalled
		time.Sleep(time.Second)
		close(stall)
	})
	if got.Failed != 0 || got.Attempted < 140 || got.Attempted > 151 || got.Max < 900*time.Millisecond || got.P50 < 250*time.Millisecond {
		t.Errorf("attempted %d, failed %d, max %v, p50 %v: of 150 requests 100 were due during the stall", got.Attempted, got.Failed, got.Max, got.P50)
	}
}

// A server that takes connections and does nothing holds nobody: a load ends within its timeout, whatever the kind.
func TestBlackHole(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	go func() {
		for {
			if _, err := ln.Accept(); err != nil {
				return
			}
		}
	}()
	for _, kind := range load.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			spec := string(kind) + "=" + ln.Addr().String() + ",timeout=500ms"
			if kind.Long() {
				spec += ",sessions=3,interval=10ms,size=1000000" // more than any buffer takes
			} else {
				spec += ",rate=200,conns=2"
			}
			began := time.Now()
			got := drive(t, spec, load.Naive, 300*time.Millisecond, nil)
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("it took %v", took)
			}
			if got.Succeeded != 0 {
				t.Errorf("account: %+v", got)
			}
		})
	}
}

// A server that reads and answers, but never ends its side: our end is not held up by it.
func TestServerWithoutGoodbye(t *testing.T) {
	a := startApp(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", a.TCPAddr)
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(up, c) }() // FIN of either side goes nowhere
			go func() { _, _ = io.Copy(c, up) }()
		}
	}()
	began := time.Now()
	got := drive(t, "tcp="+ln.Addr().String()+",sessions=3,interval=10ms,timeout=1s", load.Never, 300*time.Millisecond, nil)
	if took := time.Since(began); took > 5*time.Second || got.Failed != 0 || got.Sessions != 3 {
		t.Errorf("took %v: %+v", took, got)
	}
}

func TestParseSpec(t *testing.T) {
	for text, want := range map[string]string{
		"http1": "KIND=TARGET", "cheese=a:1": "kind", "http1=": "target", "http1=a:1,rate=-1": "rate", "http1=a:1,rate=x": "rate=x", "http1=a:1,sessions=3": "sessions", "websocket=a:1,rate=3": "rate",
		"http1=a:0": "port", "http1=ftp://a": "scheme", "tcp=a:1,interval=1us": "interval", "http1=a:1,colour=red": "colour", "http1=a:1,conns": "key=value", "grpc-unary=a:1/x": "package.Service/Method",
		"http1=a:1,mode=push": "mode", "websocket=a:1,mode=server": "mode", "grpc-stream=a:1,mode=x": "mode", "http1=a:1,over=1s": "over", "tcp=a:1,size=9,over=1s": "over", "http1=a:1,size=9,over=1m": "over",
		"websocket=a:1,resume=true": "resume", "sse=a:1,resume=x": "resume=x", "http1=a:1,retry=yes": "retry", "http1=a:1,timeout=-1s": "timeout", "grpc-unary=a:1,data=!": "data", "http1=a:1,rate=NaN": "rate", "http1=:80": "host",
		"http1=a:1,rate=0": "more than 0", "sse=a:1,retry=library": "--reconnect", "http1=a:1,rate=1e-10": "rate", "http1=a:1,ready=x,next=a:1": "ready=x", "http1=a:1,ready=http://a,next=b": "next=b", "http1=a:1,ready=http://a,next=b:99999": "next=b:99999", "tcp=a:1,sessions=0": "more than 0", "http1=a:1,rate=5,rate=5": "already", "http1=ws://a": "scheme", "websocket=tcp://a:1": "scheme", "http1=a": "host:port", "tcp=a:1?lose=1": "no path", "sse=a:1,resume=": "true or false",
	} {
		if _, err := load.ParseSpec(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want a word about %s", text, err, want)
		}
	}
	for _, text := range []string{"http1=a:1", "http1=https://a/b?c=d,rate=0.5", "grpc-stream=a:1/p.S/M,sessions=3,data=AAAA", "websocket=wss://a/ws", "tcp=[::1]:80"} {
		if _, err := load.ParseSpec(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}
