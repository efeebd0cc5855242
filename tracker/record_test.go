package tracker

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// golden compares with testdata/name; UPDATE_GOLDEN=1 writes it.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, append(got, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.TrimSpace(string(want)), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// scene is one connection with a long gRPC-like call that we end in the closing window, and one exchange.
func scene(t *testing.T) (*Registry, *Conn, *clock) {
	t.Helper()
	reg, s, clk := newTest(t, Config{})
	c := s.OpenConn(ConnFacts{Listener: "http", App: "127.0.0.1:8080", Client: "10.1.2.3:53122"})
	c.SetStage(StageIdle)
	c.SetKind(KindGRPC)
	c.SetPeer("room.example", "h2")
	st := c.OpenStream(KindGRPC, clk.now())
	st.SetHead([]byte("POST"), []byte("/chat.Room/Join?x=1"), []byte("chat"), []byte("grpc-go/1.85"), nil)
	st.SetClass(ClassNormal)
	st.SetWaiting(WaitingApp)
	st.SetStage(StageResponse)
	st.SetStatus(200)
	clk.advance(11495.5)
	c.AddBytes(ByClient, 120, clk.now())
	st.AddBytes(ByClient, 120)
	st.AddMessage(ByClient)
	reg.BeginDrain("SIGTERM", clk.now(), clk.now()+30*second)
	c.Farewell(FarewellGoAway, true, clk.now())
	clk.advance(20)
	c.HalfClosed(ByClient, clk.now())
	c.AddBytes(ByApp, 91827, clk.now())
	st.AddBytes(ByApp, 91827)
	st.AddMessage(ByApp)
	st.AddMessage(ByApp)
	clk.advance(4.9)
	return reg, c, clk
}

func TestRecordJSON(t *testing.T) {
	reg, c, clk := scene(t)
	rec, streams := get(t, reg, c)
	golden(t, "conn-open.json", rec.AppendJSON(nil))
	golden(t, "stream-open.json", streams[0].AppendJSON(nil))

	c.EndStreams(End{Fate: Ended, By: ByLastcall, How: HowProtocol, Reason: "closing window", At: clk.now()})
	clk.advance(0.1)
	c.End(End{Fate: Drained, By: ByClient, How: HowFIN, At: clk.now()})
	rec, streams = get(t, reg, c)
	golden(t, "conn-ended.json", rec.AppendJSON(nil))
	golden(t, "stream-ended.json", streams[0].AppendJSON(nil))

	for _, want := range append(streams, rec) {
		b, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got Record
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		// The text has microseconds.
		want.OpenedAt, want.EndedAt, want.Farewell.SentAt = micros(want.OpenedAt), micros(want.EndedAt), micros(want.Farewell.SentAt)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s read back (-want +got):\n%s", want.ID, diff)
		}
	}
}

func micros(t Time) Time { return t / 1000 * 1000 }

func TestAppendString(t *testing.T) {
	for _, s := range []string{
		"", "plain", `quo"te\`, "\x00\n\x1f\x7f", "<script>&", "über \u2028\u2029 \U0001f600", "bad \xff\xc3 utf8 \xe2\x80", "\ufffd",
	} {
		got := appendString(nil, s)
		var back string
		if err := json.Unmarshal(got, &back); err != nil {
			t.Errorf("%q: %s: %v", s, got, err)
		}
		// What encoding/json makes of it must be the same text.
		want, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var other string
		if err := json.Unmarshal(want, &other); err != nil || other != back {
			t.Errorf("%q: got %q, encoding/json has %q, %v", s, back, other, err)
		}
	}
}

func FuzzAppendString(f *testing.F) {
	f.Add("a path/with \"quotes\" and \xff")
	f.Add("\u2028<\x01>")
	f.Fuzz(func(t *testing.T, s string) {
		var got, want string
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(b, &want); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(appendString(nil, s), &got); err != nil || got != want {
			t.Errorf("%q: got %q, %v, want %q", s, got, err, want)
		}
	})
}

func TestHead(t *testing.T) {
	long := []byte("/" + strings.Repeat("x", 2000))
	tests := []struct {
		name                string
		cfg                 Config
		method, path        string
		wantMethod, wantPth string
	}{
		{"known method", Config{}, "GET", "/a?secret=1", "GET", "/a"},
		{"unknown method", Config{}, "BREW", "/pot", "BREW", "/pot"},
		{"long method", Config{}, strings.Repeat("M", 100), "/", strings.Repeat("M", maxMethod), "/"},
		{"long path", Config{}, "GET", string(long), "GET", string(long[:maxPath])},
		{"paths dropped", Config{DropPaths: true}, "GET", "/a", "GET", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			reg, s, clk := newTest(t, tt.cfg)
			c := openConn(s)
			st := c.OpenStream(KindHTTP1, clk.now())
			st.SetHead([]byte(tt.method), []byte(tt.path), long, long, long)
			conn, streams := get(t, reg, c)
			rec := streams[0]
			if rec.Method != tt.wantMethod || rec.Path != tt.wantPth {
				t.Errorf("got %q %q, want %q %q", rec.Method, rec.Path, tt.wantMethod, tt.wantPth)
			}
			if len(rec.Authority) != maxAuthority || len(rec.Peer.UserAgent) != maxUserAgent || conn.Peer.UserAgent != rec.Peer.UserAgent {
				t.Errorf("authority of %d bytes, user agent %q, the connection's %q", len(rec.Authority), rec.Peer.UserAgent, conn.Peer.UserAgent)
			}
			st.End(completedByApp)
			c.End(completedByApp)
		})
	}
}

// Whose turn it is, and how far things are, as §5 of the design has it.
func TestWaitingAndStage(t *testing.T) {
	reg, s, clk := newTest(t, Config{})
	c := s.OpenConn(ConnFacts{})
	want := func(step string, connW WaitingOn, connS Stage, streamW WaitingOn, streamS Stage) {
		t.Helper()
		rec, streams := get(t, reg, c)
		if rec.WaitingOn != connW || rec.Stage != connS {
			t.Errorf("%s: connection waits on %s at %s, want %s at %s", step, rec.WaitingOn, rec.Stage, connW, connS)
		}
		if len(streams) > 0 && (streams[0].WaitingOn != streamW || streams[0].Stage != streamS) {
			t.Errorf("%s: stream waits on %s at %s, want %s at %s", step, streams[0].WaitingOn, streams[0].Stage, streamW, streamS)
		}
	}
	want("dialling", WaitingApp, StageConnect, 0, 0)
	st := c.OpenStream(KindHTTP1, clk.now())
	want("dialling, request begun", WaitingApp, StageConnect, WaitingApp, StageConnect)
	c.SetStage(StageIdle)
	want("request begun", WaitingClient, StageRequest, WaitingClient, StageRequest)
	st.SetWaiting(WaitingApp)
	st.SetStage(StageResponse)
	want("request whole", WaitingApp, StageResponse, WaitingApp, StageResponse)
	c.Blocked(ByClient, true)
	want("client does not read", WaitingClient, StageResponse, WaitingClient, StageResponse)
	c.Blocked(ByClient, false)
	c.Blocked(ByApp, true)
	st.SetWaiting(WaitingClient)
	want("app does not read", WaitingApp, StageResponse, WaitingApp, StageResponse)
	c.Blocked(ByApp, false)
	st.End(completedByApp)
	want("idle", WaitingNobody, StageIdle, WaitingNobody, StageResponse)

	st = c.OpenStream(KindHTTP1, clk.now())
	st.SetWaiting(WaitingApp)
	st.SetStage(StageResponse)
	c.EndStreams(End{Fate: Aborted, By: ByClient, How: HowRST})
	c.End(End{Fate: Aborted, By: ByClient, How: HowRST})
	rec, streams := get(t, reg, c)
	if rec.Stage != StageResponse || rec.WaitingOn != WaitingApp || streams[1].Stage != StageResponse || streams[1].How != HowRST {
		t.Errorf("broken off: got %s, %s", rec.AppendJSON(nil), streams[1].AppendJSON(nil))
	}
}

func TestUnreachableIsAtConnect(t *testing.T) {
	reg, s, clk := newTest(t, Config{})
	c := s.OpenConn(ConnFacts{})
	c.OpenStream(KindHTTP1, clk.now()).SetStage(StageRequest)
	e := End{Fate: Unreachable, By: ByApp, How: HowRST, Reason: "connection refused"}
	c.EndStreams(e)
	c.End(e)
	rec, streams := get(t, reg, c)
	for _, r := range append(streams, rec) {
		if r.Stage != StageConnect || r.Fate != Unreachable || r.By != ByApp || r.How != HowRST {
			t.Errorf("got %s", r.AppendJSON(nil))
		}
	}
}

func TestIdle(t *testing.T) {
	reg, s, clk := newTest(t, Config{})
	c := openConn(s)
	a := c.OpenStream(KindHTTP2, clk.now())
	clk.advance(3)
	c.AddBytes(ByClient, 1, clk.now())
	clk.advance(1)
	want := func(step string, rec Record, client, app Seconds) {
		t.Helper()
		if diff := cmp.Diff(Sides[Seconds]{Client: client, App: app}, rec.Idle); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step, diff)
		}
	}
	rec, streams := get(t, reg, c)
	want("connection", rec, 1, 4)
	want("its only stream has the connection's clock", streams[0], 1, 4)
	b := c.OpenStream(KindHTTP2, clk.now())
	c.AddBytes(ByApp, 1, clk.now())
	b.AddBytes(ByApp, 1)
	clk.advance(2)
	_, streams = get(t, reg, c)
	want("one of two, silent", streams[0], 6, 6)
	want("one of two, active", streams[1], 2, 2)
	a.End(completedByApp)
	b.End(completedByApp)
	c.End(completedByApp)
	clk.advance(100)
	rec, _ = get(t, reg, c)
	want("idle stays what it was at the end", rec, 3, 2)
}
