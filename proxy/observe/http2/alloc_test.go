package http2_test

import (
	"encoding/binary"
	"testing"

	"github.com/lastcall-proxy/lastcall/proxy/observe"
	"github.com/lastcall-proxy/lastcall/proxy/observe/http2"
	"github.com/lastcall-proxy/lastcall/proxy/observe/observetest"
)

// exchanges plays one exchange after the other, with the headers that are in the tables by then.
type exchanges struct {
	o             *http2.Observer
	request, resp []byte
	id            uint32
}

func newExchanges() *exchanges {
	c, s := newScript(), newScript()
	e := &exchanges{o: http2.New(observetest.Deaf{}, http2.Options{}), id: 1}
	e.o.Data(observe.FromClient, []byte(http2.Preface+c.settings().headers(1, true, get...).take()))
	e.o.Data(observe.FromApp, []byte(s.settings().headers(1, false, ":status:200", "server:x", "content-type:text/plain").data(1, true, "hi").take()))
	e.request = []byte(c.headers(3, true, get...).take())
	e.resp = []byte(s.headers(3, false, ":status:200", "server:x", "content-type:text/plain").data(3, true, "hi").take())
	return e
}

func (e *exchanges) one() {
	e.id += 2
	binary.BigEndian.PutUint32(e.request[5:], e.id)
	binary.BigEndian.PutUint32(e.resp[5:], e.id)
	binary.BigEndian.PutUint32(e.resp[len(e.resp)-6:], e.id)
	e.o.Data(observe.FromClient, e.request)
	e.o.Data(observe.FromApp, e.resp)
}

func TestNoAllocationPerExchange(t *testing.T) {
	e := newExchanges()
	e.one()
	if n := testing.AllocsPerRun(1000, e.one); n != 0 {
		t.Errorf("allocations per exchange: got %v, want 0", n)
	}
}

func BenchmarkExchange(b *testing.B) {
	e := newExchanges()
	b.ReportAllocs()
	for b.Loop() {
		e.one()
	}
}
