package detect_test

import (
	"testing"

	"github.com/lastcall-proxy/lastcall/proxy/observe"
	"github.com/lastcall-proxy/lastcall/proxy/observe/detect"
	"github.com/lastcall-proxy/lastcall/proxy/observe/http1"
	"github.com/lastcall-proxy/lastcall/proxy/observe/http2"
	"github.com/lastcall-proxy/lastcall/proxy/observe/observetest"
	"github.com/lastcall-proxy/lastcall/proxy/observe/opaque"
	"github.com/lastcall-proxy/lastcall/proxy/observe/tlshello"
)

const settings = "\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x64"

func TestChoice(t *testing.T) {
	client, app := observetest.Client, observetest.App
	get := "GET / HTTP/1.1\r\n\r\n"
	h2 := http2.Preface + settings
	tests := []struct {
		name  string
		steps []observetest.Step
		want  detect.Protocol
		out   [2]string
	}{
		{"HTTP/1", []observetest.Step{client(get)}, detect.HTTP1, [2]string{get}},
		{"a method that begins like the preface", []observetest.Step{client("PROPFIND / HTTP/1.1\r\n\r\n")}, detect.HTTP1, [2]string{"PROPFIND / HTTP/1.1\r\n\r\n"}},
		{"HTTP/2", []observetest.Step{client(h2), app(settings)}, detect.HTTP2, [2]string{h2, settings}},
		{"HTTP/2, server first", []observetest.Step{app(settings), client(h2)}, detect.HTTP2, [2]string{h2, settings}},
		{"TLS", []observetest.Step{client("\x16\x03\x01\x00\x05hello")}, detect.TLS, [2]string{"\x16\x03\x01\x00\x05hello"}},
		{"server first", []observetest.Step{app("220 ready\r\n"), client("PRI")}, detect.Opaque, [2]string{"PRI", "220 ready\r\n"}},
		{"binary", []observetest.Step{client("\x00\x00\x01")}, detect.Opaque, [2]string{"\x00\x00\x01"}},
		{"three letters", []observetest.Step{client("PRI"), observetest.EOF(observe.FromClient)}, detect.HTTP1, [2]string{"PRI"}},
		{"nothing", []observetest.Step{observetest.EOF(observe.FromClient)}, detect.Undecided, [2]string{}},
		{"late, held", []observetest.Step{observetest.Tell(observe.OrderReject), client(get)}, detect.HTTP1, [2]string{"", "HTTP/1.1 503"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got detect.Protocol
			res := observetest.Splits(t, func(s observe.Sink) observe.Observer {
				return detect.New(func(p detect.Protocol) observe.Observer {
					got = p
					switch p {
					case detect.HTTP1:
						return http1.New(s, http1.Options{})
					case detect.HTTP2:
						return http2.New(s, http2.Options{})
					case detect.TLS:
						return tlshello.New(s)
					case detect.Opaque, detect.Undecided:
					}
					return opaque.New(s)
				})
			}, tt.steps)
			if got != tt.want {
				t.Errorf("chose %d, want %d", got, tt.want)
			}
			if res.Out[0] != tt.out[0] || len(res.Out[1]) < len(tt.out[1]) || res.Out[1][:len(tt.out[1])] != tt.out[1] {
				t.Errorf("out: got %q, want %q", res.Out, tt.out)
			}
		})
	}
}
