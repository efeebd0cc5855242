package http2_test

import (
	"bytes"
	"strconv"
	"strings"
	"testing"

	xhttp2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/lastcall-proxy/lastcall/proxy/observe"
	"github.com/lastcall-proxy/lastcall/proxy/observe/http2"
	"github.com/lastcall-proxy/lastcall/proxy/observe/observetest"
	"github.com/lastcall-proxy/lastcall/proxy/observe/websocket"
)

func newObs(s observe.Sink) observe.Observer {
	return http2.New(s, http2.Options{
		Random:    func() uint64 { return 0x0102030405060708 },
		WebSocket: func(sink observe.Sink, st observe.Stream) observe.Observer { return websocket.New(sink, st) },
	})
}

// script writes frames of one side.
type script struct {
	buf bytes.Buffer
	fr  *xhttp2.Framer
	enc *hpack.Encoder
	hb  bytes.Buffer
}

func newScript() *script {
	s := &script{}
	s.fr = xhttp2.NewFramer(&s.buf, nil)
	s.enc = hpack.NewEncoder(&s.hb)
	return s
}

func (s *script) take() string {
	t := s.buf.String()
	s.buf.Reset()
	return t
}

func (s *script) headers(id uint32, end bool, fields ...string) *script {
	s.hb.Reset()
	for _, f := range fields {
		i := strings.Index(f[1:], ":") + 1
		_ = s.enc.WriteField(hpack.HeaderField{Name: f[:i], Value: f[i+1:]})
	}
	_ = s.fr.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: id, BlockFragment: s.hb.Bytes(), EndHeaders: true, EndStream: end})
	return s
}

func (s *script) data(id uint32, end bool, b string) *script {
	_ = s.fr.WriteData(id, end, []byte(b))
	return s
}

func (s *script) settings(v ...xhttp2.Setting) *script {
	_ = s.fr.WriteSettings(v...)
	return s
}

func hasEvent(events []string, want string) bool {
	for _, e := range events {
		if strings.HasSuffix(e, want) {
			return true
		}
	}
	return false
}

var (
	get   = []string{":method:GET", ":path:/a?q", ":authority:h", ":scheme:http", "user-agent:ua"}
	call  = []string{":method:POST", ":path:/s/m", ":authority:h", ":scheme:http", "content-type:application/grpc+proto", "user-agent:grpc-go"}
	watch = []string{":method:POST", ":path:/grpc.health.v1.Health/Watch", ":authority:h", ":scheme:http", "content-type:application/grpc", "user-agent:grpc-go"}
	wsup  = []string{":method:CONNECT", ":protocol:websocket", ":path:/chat", ":authority:h", ":scheme:http"}
	ok    = []string{":status:200"}
)

// What happens on the wire, as the account has it; cut anywhere, it is the same.
func TestAccount(t *testing.T) {
	const greeting = "\x00\x00\x00\x00\x05hello"
	tests := []struct {
		name string
		play func(c, s *script) []observetest.Step
		want []string // events that there must be, by their ends
	}{
		{"exchange", func(c, s *script) []observetest.Step {
			return []observetest.Step{
				observetest.Client(http2.Preface + c.settings().headers(1, true, get...).take()),
				observetest.App(s.settings().headers(1, false, ok...).data(1, true, "hi").take())}
		}, []string{"protocol 6", `s1 head GET /a h "ua" kind=6`, "s1 half closed client", "s1 status 200", "s1 done 0 by app code 0"}},
		{"gRPC call", func(c, s *script) []observetest.Step {
			return []observetest.Step{
				observetest.Client(http2.Preface + c.settings().headers(1, false, call...).data(1, true, greeting).take()),
				observetest.App(s.settings().headers(1, false, ":status:200", "content-type:application/grpc").data(1, false, greeting+greeting).headers(1, true, "grpc-status:5").take())}
		}, []string{"s1 kind 7", "s1 message client", "s1 message app", "s1 grpc status 5", "s1 done 0 by app code 0"}},
		{"client gives up", func(c, s *script) []observetest.Step {
			_ = c.settings().headers(1, true, get...).fr.WriteRSTStream(1, xhttp2.ErrCodeCancel)
			return []observetest.Step{observetest.Client(http2.Preface + c.take()), observetest.App(s.settings().take())}
		}, []string{"s1 done 1 by client code 0 reset CANCEL"}},
		{"app refuses", func(c, s *script) []observetest.Step {
			_ = s.settings().fr.WriteRSTStream(1, xhttp2.ErrCodeRefusedStream)
			return []observetest.Step{observetest.Client(http2.Preface + c.settings().headers(1, true, get...).take()), observetest.App(s.take())}
		}, []string{"s1 done 1 by app code 0 reset REFUSED_STREAM"}},
		{"early answer", func(c, s *script) []observetest.Step {
			_ = s.settings().headers(1, true, ":status:413").fr.WriteRSTStream(1, xhttp2.ErrCodeNo)
			return []observetest.Step{observetest.Client(http2.Preface + c.settings().headers(1, false, call...).take()), observetest.App(s.take())}
		}, []string{"s1 half closed app", "s1 done 0 by app code 0"}},
		{"client does not read", func(c, s *script) []observetest.Step {
			return []observetest.Step{
				observetest.Client(http2.Preface + c.settings(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: 2}).headers(1, true, get...).take()),
				observetest.App(s.settings().headers(1, false, ok...).data(1, false, "hi").take())}
		}, []string{"s1 state 1 1", "s1 state 0 1"}},
		{"WebSocket", func(c, s *script) []observetest.Step {
			return []observetest.Step{
				observetest.Client(http2.Preface + c.settings().headers(1, false, wsup...).take()),
				observetest.App(s.settings().headers(1, false, ok...).data(1, false, "\x81\x02hi").take()),
				observetest.Client(c.data(1, false, "\x88\x82\x00\x00\x00\x00\x03\xe8").take()),
				observetest.App(s.data(1, true, "\x88\x02\x03\xe8").take())}
		}, []string{"s1 kind 4", "s1 message app", "s1 done 0 by client code 1000"}},
		{"not a preface", func(*script, *script) []observetest.Step {
			return []observetest.Step{observetest.Client("PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n")}
		}, []string{"lost " + http2.LostPreface}},
		{"no settings", func(c, _ *script) []observetest.Step {
			return []observetest.Step{observetest.Client(http2.Preface + c.headers(1, true, get...).take())}
		}, []string{"lost " + http2.LostFrame}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			steps := tt.play(newScript(), newScript())
			res := observetest.Splits(t, newObs, steps)
			for _, w := range tt.want {
				if !hasEvent(res.Events, w) {
					t.Errorf("no event %q in:\n%s", w, strings.Join(res.Events, "\n"))
				}
			}
			var in [2]string
			for _, s := range steps {
				in[s.Dir] += s.Data
			}
			if res.Out != in {
				t.Errorf("what left is not what came")
			}
		})
	}
}

// The goodbyes, as the peers see them: x/net's framer reads what left.
func TestGoodbyes(t *testing.T) {
	tell := observetest.Tell
	open := func(c, s *script, request, answer []string) []observetest.Step {
		return []observetest.Step{
			observetest.Client(http2.Preface + c.settings().headers(1, false, request...).take()),
			observetest.App(s.settings().headers(1, false, answer...).take())}
	}
	tests := []struct {
		name        string
		play        func(c, s *script) []observetest.Step
		client, app []string // the last frames that each reads
		events      []string
	}{
		{"farewell", func(c, s *script) []observetest.Step { return append(open(c, s, get, ok), tell(observe.OrderFarewell)) },
			[]string{"GOAWAY last 2147483647", "PING"}, nil, []string{"farewell own=true"}},
		{"the app said it", func(c, s *script) []observetest.Step {
			steps := open(c, s, get, ok)
			_ = s.fr.WriteGoAway(1<<31-1, 0, nil)
			return append(steps, observetest.App(s.take()), tell(observe.OrderFarewell))
		}, []string{"GOAWAY last 2147483647"}, nil, []string{"farewell own=false"}},
		{"last id", func(c, s *script) []observetest.Step { return append(open(c, s, get, ok), tell(observe.OrderReject)) },
			[]string{"GOAWAY last 1"}, nil, nil},
		{"late stream", func(c, s *script) []observetest.Step {
			steps := append(open(c, s, get, ok), tell(observe.OrderReject))
			return append(steps, observetest.Client(c.headers(3, false, call...).data(3, true, "12345").take()))
		}, []string{"RST_STREAM 3 REFUSED_STREAM", "WINDOW_UPDATE 0 5"}, []string{"HEADERS 1"}, []string{"s2 done 3 by client code 0 reset REFUSED_STREAM"}},
		{"gRPC call", func(c, s *script) []observetest.Step {
			return append(open(c, s, call, ok), tell(observe.OrderEnd))
		}, []string{"HEADERS 1 grpc-status=14 grpc-message=server is shutting down END_STREAM", "RST_STREAM 1 NO_ERROR", "GOAWAY last 1"}, []string{"RST_STREAM 1 CANCEL"}, []string{"s1 grpc status 14", "s1 done 2 by client code 0", "close after"}},
		{"gRPC call without an answer", func(c, s *script) []observetest.Step {
			return []observetest.Step{observetest.Client(http2.Preface + c.settings().headers(1, true, call...).take()), observetest.App(s.settings().take()), tell(observe.OrderEnd)}
		}, []string{"HEADERS 1 :status=200 content-type=application/grpc grpc-status=14 grpc-message=server is shutting down END_STREAM", "GOAWAY last 1"}, []string{"RST_STREAM 1 CANCEL"}, nil},
		{"inside a message", func(c, s *script) []observetest.Step {
			return append(open(c, s, call, ok), observetest.App(s.data(1, false, "\x00\x00\x00\x00\x04ab").take()), tell(observe.OrderEnd), observetest.App(s.data(1, false, "cd").take()))
		}, []string{"GOAWAY last 1", "DATA 1", "HEADERS 1 grpc-status=14 grpc-message=server is shutting down END_STREAM", "RST_STREAM 1 NO_ERROR"}, []string{"RST_STREAM 1 CANCEL"}, nil},
		{"exchange", func(c, s *script) []observetest.Step { return append(open(c, s, get, ok), tell(observe.OrderEnd)) },
			[]string{"RST_STREAM 1 CANCEL", "GOAWAY last 1"}, []string{"RST_STREAM 1 CANCEL"}, []string{"s1 done 2 by client code 0 reset CANCEL"}},
		{"WebSocket", func(c, s *script) []observetest.Step {
			return append(open(c, s, wsup, ok), tell(observe.OrderEnd))
		}, []string{"DATA 1 END_STREAM", "GOAWAY last 1"}, []string{"DATA 1 END_STREAM"}, []string{"s1 done 2 by client code 1012"}},
		{"WebSocket inside a frame", func(c, s *script) []observetest.Step {
			return append(open(c, s, wsup, ok), observetest.App(s.data(1, false, "\x81\x04ab").take()), tell(observe.OrderEnd), observetest.App(s.data(1, false, "cd\x81\x01x").take()))
		}, []string{"GOAWAY last 1", "DATA 1 END_STREAM"}, []string{"DATA 1 END_STREAM"}, []string{"s1 done 2 by client code 1012"}},
		{"higher GOAWAY of the app's", func(c, s *script) []observetest.Step {
			steps := append(open(c, s, get, ok), tell(observe.OrderReject))
			_ = s.fr.WriteGoAway(1<<31-1, 0, []byte("bye"))
			return append(steps, observetest.App(s.take()))
		}, []string{"GOAWAY last 1"}, nil, []string{"farewell own=false"}},
		{"health watch", func(c, s *script) []observetest.Step {
			return []observetest.Step{
				observetest.Client(http2.Preface + c.settings().headers(1, false, watch...).data(1, true, "\x00\x00\x00\x00\x00").headers(3, true, call...).take()),
				observetest.App(s.settings().headers(1, false, ok...).data(1, false, "\x00\x00\x00\x00\x00").take()), tell(observe.OrderReject),
				observetest.App(s.headers(3, true, ":status:200", "grpc-status:0").take())}
		}, []string{"GOAWAY last 3", "HEADERS 3 :status=200 grpc-status=0 END_STREAM", "HEADERS 1 grpc-status=14 grpc-message=server is shutting down END_STREAM"}, []string{"RST_STREAM 1 CANCEL"}, []string{"s1 done 2 by client code 0", "close after"}},
		{"cancelled", func(c, s *script) []observetest.Step {
			return append(open(c, s, get, ok), tell(observe.OrderFarewell), tell(observe.OrderServe), observetest.Client(c.headers(3, true, get...).take()))
		}, []string{"PING"}, []string{"HEADERS 3 :method=GET :path=/a?q :authority=h :scheme=http user-agent=ua END_STREAM"}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			play := observetest.Splits
			if strings.HasPrefix(tt.name, "WebSocket") { // the mask of our Close is random
				play = func(t testing.TB, n func(observe.Sink) observe.Observer, s []observetest.Step, _ ...string) observetest.Result {
					return observetest.Run(t, n, s, 0)
				}
			}
			res := play(t, newObs, tt.play(newScript(), newScript()))
			for i, want := range [][]string{tt.app, tt.client} {
				got := readFrames(t, strings.TrimPrefix(res.Out[i], http2.Preface))
				for n, w := range want {
					at := len(got) - len(want) + n
					if at < 0 || !strings.HasPrefix(got[at], w) {
						t.Errorf("frames out %d: got %q, want at their end %q", i, got, want)
						break
					}
				}
			}
			for _, w := range tt.events {
				if !hasEvent(res.Events, w) {
					t.Errorf("no event %q in:\n%s", w, strings.Join(res.Events, "\n"))
				}
			}
		})
	}
}

// readFrames says in words what a peer reads.
func readFrames(t *testing.T, b string) (out []string) {
	t.Helper()
	fr := xhttp2.NewFramer(nil, strings.NewReader(b))
	fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for {
		f, err := fr.ReadFrame()
		if err != nil {
			return out
		}
		switch f := f.(type) {
		case *xhttp2.MetaHeadersFrame:
			w := "HEADERS " + itoa(f.StreamID)
			for _, h := range f.Fields {
				w += " " + h.Name + "=" + h.Value
			}
			if f.StreamEnded() {
				w += " END_STREAM"
			}
			out = append(out, w)
		case *xhttp2.DataFrame:
			w := "DATA " + itoa(f.StreamID)
			if f.StreamEnded() {
				w += " END_STREAM"
			}
			out = append(out, w)
		case *xhttp2.RSTStreamFrame:
			out = append(out, "RST_STREAM "+itoa(f.StreamID)+" "+f.ErrCode.String())
		case *xhttp2.GoAwayFrame:
			out = append(out, "GOAWAY last "+itoa(f.LastStreamID))
		case *xhttp2.WindowUpdateFrame:
			out = append(out, "WINDOW_UPDATE "+itoa(f.StreamID)+" "+itoa(f.Increment))
		default:
			out = append(out, f.Header().Type.String())
		}
	}
}

func itoa(n uint32) string { return strconv.FormatUint(uint64(n), 10) }
