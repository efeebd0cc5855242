package http1_test

import (
	"testing"

	"github.com/lastcall-proxy/lastcall/proxy/observe"
	"github.com/lastcall-proxy/lastcall/proxy/observe/http1"
	"github.com/lastcall-proxy/lastcall/proxy/observe/observetest"
)

var (
	browser = []byte("GET /a?q=1 HTTP/1.1\r\nHost: h.example\r\nUser-Agent: Mozilla/5.0\r\nAccept: */*\r\nAccept-Encoding: gzip, br\r\nCookie: a=b\r\n\r\n")
	reply   = []byte("HTTP/1.1 200 OK\r\nServer: x\r\nDate: Tue, 01 Dec 2026 00:00:00 GMT\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nhi")
)

func exchange(o *http1.Observer) {
	o.Data(observe.FromClient, browser)
	o.Data(observe.FromApp, reply)
}

func TestNoAllocationPerExchange(t *testing.T) {
	o := http1.New(observetest.Deaf{}, http1.Options{})
	exchange(o)
	if n := testing.AllocsPerRun(1000, func() { exchange(o) }); n != 0 {
		t.Errorf("allocations per exchange: got %v, want 0", n)
	}
}

func BenchmarkExchange(b *testing.B) {
	o := http1.New(observetest.Deaf{}, http1.Options{})
	b.ReportAllocs()
	for b.Loop() {
		exchange(o)
	}
}
