package load_test

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/lastcall-proxy/lastcall/bench/load"
)

// accepting serves every connection to it, and gives its address.
func accepting(t *testing.T, serve func(c net.Conn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { defer func() { _ = c.Close() }(); serve(c) }()
		}
	}()
	return ln.Addr().String()
}

// closesHTTP1 answers the first request of a connection and closes at the second.
func closesHTTP1(c net.Conn) {
	r := bufio.NewReader(c)
	if _, err := http.ReadRequest(r); err != nil {
		return
	}
	_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	_, _ = http.ReadRequest(r)
}

// refusesHTTP2 answers every other stream, and refuses those between.
func refusesHTTP2(grpc bool) func(c net.Conn) {
	return func(c net.Conn) {
		_, _ = io.ReadFull(c, make([]byte, len(http2.ClientPreface)))
		f := http2.NewFramer(c, c)
		_ = f.WriteSettings()
		var b bytes.Buffer
		enc := hpack.NewEncoder(&b)
		block := func(fields ...string) []byte {
			b.Reset()
			for i := 0; i < len(fields); i += 2 {
				_ = enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
			}
			return b.Bytes()
		}
		for n := 0; ; {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			switch frame := frame.(type) {
			case *http2.SettingsFrame:
				if !frame.IsAck() {
					_ = f.WriteSettingsAck()
				}
			case *http2.PingFrame:
				if !frame.IsAck() {
					_ = f.WritePing(true, frame.Data)
				}
			case *http2.HeadersFrame:
				id := frame.StreamID
				if n++; n%2 == 0 {
					_ = f.WriteRSTStream(id, http2.ErrCodeRefusedStream)
					continue
				}
				if !grpc {
					_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block(":status", "200"), EndHeaders: true, EndStream: true})
					continue
				}
				_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block(":status", "200", "content-type", "application/grpc"), EndHeaders: true})
				_ = f.WriteData(id, false, make([]byte, 5))
				_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block("grpc-status", "0"), EndHeaders: true, EndStream: true})
			}
		}
	}
}

// What the client's library sends again by itself is a failure that it hides, unless it may: then each time is counted.
func TestLibraryRetries(t *testing.T) {
	for kind, tt := range map[string]struct {
		serve func(net.Conn)
		want  load.Outcome
	}{
		"http1":      {closesHTTP1, load.Closed},
		"http2":      {refusesHTTP2(false), load.StreamRefused},
		"grpc-unary": {refusesHTTP2(true), load.StreamRefused},
	} {
		t.Run(kind, func(t *testing.T) {
			spec := kind + "=" + accepting(t, tt.serve) + ",rate=50,conns=1"
			plain := drive(t, spec, load.Never, 500*time.Millisecond, nil)
			if plain.Outcomes[tt.want] == 0 || plain.Failed != plain.Outcomes[tt.want] || plain.Outcomes[load.RetriedLibrary] != 0 {
				t.Errorf("without: %v", plain.Outcomes)
			}
			again := drive(t, spec+",retry=library", load.Never, 500*time.Millisecond, nil)
			// grpc-go itself fails a call now and then that it has sent again.
			if again.Failed != again.Outcomes[load.StreamReset] || again.Failed > again.Succeeded/5 || again.Outcomes[load.RetriedLibrary] == 0 {
				t.Errorf("with: %v of %d, %+v", again.Outcomes, again.Attempted, again.Entries)
			}
		})
	}
}
