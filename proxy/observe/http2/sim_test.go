package http2_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	xhttp2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/lastcall-proxy/lastcall/proxy/observe"
	"github.com/lastcall-proxy/lastcall/proxy/observe/http2"
	"github.com/lastcall-proxy/lastcall/proxy/observe/observetest"
)

// peer is one end of a simulated connection: it writes frames with an encoder of its own, and reads what came through the
// observer with x/net's framer and decoder, which know nothing of us.
type peer struct {
	name   string
	out    bytes.Buffer // written, not given to the observer yet
	fr     *xhttp2.Framer
	encBuf bytes.Buffer
	enc    *hpack.Encoder
	in     bytes.Buffer // what came
	dec    *hpack.Decoder
	block  []byte
	head   xhttp2.FrameHeader // of the block under way

	window  int64 // what it believes it may send on the connection
	granted int64 // what it has let the other side send
	streams map[uint32]*end
	goAways []uint32
	pings   [][8]byte // of its own, unanswered
}

// end is a stream as one peer sees it.
type end struct {
	sent   [][]hpack.HeaderField // blocks that it sent, as they must arrive
	got    [][]hpack.HeaderField
	body   int
	local  bool // it has ended or reset its side
	remote bool // the other side's end was seen
	reset  bool // either way
	window int64
}

func newPeer(name string) *peer {
	p := &peer{name: name, window: 65535, granted: 65535, streams: map[uint32]*end{}}
	p.fr = xhttp2.NewFramer(&p.out, &p.in)
	p.fr.AllowIllegalWrites = false
	p.fr.SetMaxReadFrameSize(1 << 20)
	p.enc = hpack.NewEncoder(&p.encBuf)
	p.dec = hpack.NewDecoder(4096, nil)
	return p
}

func (p *peer) encode(fields []hpack.HeaderField) []byte {
	p.encBuf.Reset()
	for _, f := range fields {
		_ = p.enc.WriteField(f)
	}
	return bytes.Clone(p.encBuf.Bytes())
}

// sim is a client and a server with an observer between them.
type sim struct {
	r      *rand.Rand
	c, s   *peer
	obs    *http2.Observer
	rec    *observetest.Recorder
	next   uint32 // client's next stream
	orders []observe.Order
	// What was refused or ended by us is known by what the client is told.
	limit   uint32
	ours    uint32 // lowest last id of the sidecar's
	appLast uint32 // of the server's own GOAWAYs
	log     []string
}

func newSim(seed uint64) *sim {
	r := rand.New(rand.NewPCG(seed, 1))
	m := &sim{r: r, c: newPeer("client"), s: newPeer("server"), next: 1, limit: 1<<31 - 1, ours: 1<<31 - 1, appLast: 1<<31 - 1}
	m.rec = &observetest.Recorder{Bytes: map[string]int{}, Agents: map[string]bool{"probe": true}}
	m.obs = http2.New(m.rec, http2.Options{Random: r.Uint64})
	m.c.out.WriteString(http2.Preface)
	_ = m.c.fr.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingMaxFrameSize, Val: 1 << 20})
	_ = m.s.fr.WriteSettings()
	return m
}

func (m *sim) note(format string, args ...any) { m.log = append(m.log, fmt.Sprintf(format, args...)) }

// relay gives the observer some of what a side has written, and the other side what comes of it.
func (m *sim) relay(dir observe.Direction, n int) error {
	from, to := m.c, m.s
	if dir == observe.FromApp {
		from, to = m.s, m.c
	}
	chunk := bytes.Clone(from.out.Next(n))
	if len(chunk) == 0 {
		return nil
	}
	edits := m.obs.Data(dir, chunk)
	return m.apply(edits, dir, chunk, to)
}

func (m *sim) apply(edits []observe.Edit, dir observe.Direction, p []byte, to *peer) error {
	at := 0
	for _, e := range edits {
		if e.Dir != dir {
			m.peerOf(e.Dir).in.Write(e.Insert)
			continue
		}
		if e.Off < at || e.Off+e.Drop > len(p) {
			return fmt.Errorf("edit out of place: %d+%d at %d of %d", e.Off, e.Drop, at, len(p))
		}
		to.in.Write(p[at:e.Off])
		to.in.Write(e.Insert)
		at = e.Off + e.Drop
	}
	to.in.Write(p[at:])
	return nil
}

func (m *sim) peerOf(flow observe.Direction) *peer {
	if flow == observe.FromClient {
		return m.s
	}
	return m.c
}

func (m *sim) tell(o observe.Order) {
	m.note("tell %d", o)
	m.orders = append(m.orders, o)
	for _, e := range m.obs.Tell(o) {
		m.peerOf(e.Dir).in.Write(e.Insert)
	}
}

// read takes whole frames off what came.
func (p *peer) read(m *sim) error {
	if p == m.s && p.in.Len() > 0 && p.granted == 65535 && bytes.HasPrefix(p.in.Bytes(), []byte("PRI")) {
		if p.in.Len() < len(http2.Preface) {
			return nil
		}
		if got := p.in.Next(len(http2.Preface)); string(got) != http2.Preface {
			return fmt.Errorf("preface %q", got)
		}
	}
	for {
		b := p.in.Bytes()
		if len(b) < 9 || len(b) < 9+(int(b[0])<<16|int(b[1])<<8|int(b[2])) || strings.HasPrefix(string(b), "PRI") {
			return nil
		}
		f, err := p.fr.ReadFrame()
		if err != nil {
			return fmt.Errorf("%s reads %x…: %w (%w)", p.name, b[:min(len(b), 40)], err, p.fr.ErrorDetail())
		}
		if err := p.frame(m, f); err != nil {
			return fmt.Errorf("%s, %v: %w", p.name, f, err)
		}
	}
}

func (p *peer) frame(m *sim, f xhttp2.Frame) error {
	h := f.Header()
	m.note("%s reads %v", p.name, h)
	switch f := f.(type) {
	case *xhttp2.HeadersFrame:
		p.block, p.head = append(p.block[:0], f.HeaderBlockFragment()...), h
		if f.HeadersEnded() {
			return p.fields(m)
		}
	case *xhttp2.ContinuationFrame:
		p.block = append(p.block, f.HeaderBlockFragment()...)
		if f.HeadersEnded() {
			return p.fields(m)
		}
	case *xhttp2.DataFrame:
		s := p.streams[h.StreamID]
		p.granted -= int64(h.Length)
		if p.granted < 0 {
			return fmt.Errorf("connection window exceeded by %d", -p.granted)
		}
		if s == nil {
			return fmt.Errorf("DATA on an unknown stream")
		}
		if s.remote || s.reset && p == m.c && !s.local {
			return fmt.Errorf("DATA on a stream that is over")
		}
		s.body += len(f.Data())
		s.remote = s.remote || f.StreamEnded()
	case *xhttp2.RSTStreamFrame:
		s := p.streams[h.StreamID]
		if s == nil {
			return fmt.Errorf("RST_STREAM of an idle stream")
		}
		s.reset, s.remote = true, true
	case *xhttp2.GoAwayFrame:
		if n := len(p.goAways); n > 0 && f.LastStreamID > p.goAways[n-1] {
			return fmt.Errorf("last id rises from %d to %d", p.goAways[n-1], f.LastStreamID)
		}
		p.goAways = append(p.goAways, f.LastStreamID)
		if len(f.DebugData()) == 0 { // the sidecar's: the simulated app always gives some
			m.ours = min(m.ours, f.LastStreamID)
		}
	case *xhttp2.PingFrame:
		if f.IsAck() {
			if len(p.pings) == 0 || p.pings[0] != f.Data {
				return fmt.Errorf("answer to a PING that it did not send")
			}
			p.pings = p.pings[1:]
			return nil
		}
		return p.fr.WritePing(true, f.Data)
	case *xhttp2.WindowUpdateFrame:
		if f.Increment == 0 {
			return fmt.Errorf("increment 0")
		}
		if h.StreamID == 0 {
			p.window += int64(f.Increment)
		} else if s := p.streams[h.StreamID]; s != nil {
			s.window += int64(f.Increment)
		}
	case *xhttp2.SettingsFrame:
		if !f.IsAck() {
			return p.fr.WriteSettingsAck()
		}
	}
	return nil
}

func (p *peer) fields(m *sim) error {
	list, err := p.dec.DecodeFull(p.block)
	if err != nil {
		return err
	}
	id := p.head.StreamID
	s := p.streams[id]
	if s == nil {
		if p != m.s {
			return fmt.Errorf("head on an unknown stream")
		}
		if id > m.limit {
			return fmt.Errorf("stream %d reached the app above the last id %d", id, m.limit)
		}
		s = &end{window: 65535}
		p.streams[id] = s
	}
	if s.remote {
		return fmt.Errorf("head on a stream that is over")
	}
	s.got = append(s.got, list)
	s.remote = p.head.Flags.Has(xhttp2.FlagHeadersEndStream)
	other := m.s
	if p == m.s {
		other = m.c
	}
	want := [][]hpack.HeaderField(nil)
	if o := other.streams[id]; o != nil {
		want = o.sent
	}
	if n := len(s.got) - 1; n < len(want) && slices.Equal(want[n], list) {
		return nil
	}
	for _, f := range list { // our own trailers
		if f.Name == "grpc-message" && f.Value == "server is shutting down" && s.remote && p == m.c {
			return nil
		}
	}
	return fmt.Errorf("fields %v are not those that were sent: %v", list, want)
}

var words = []string{"a", "bb", "custom", "x-y", "zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz", strings.Repeat("long", 300)}

func (m *sim) word() string { return words[m.r.IntN(len(words))] }

func (m *sim) extra(fields []hpack.HeaderField) []hpack.HeaderField {
	for range m.r.IntN(5) {
		fields = append(fields, hpack.HeaderField{Name: "x-" + m.word(), Value: m.word(), Sensitive: m.r.IntN(4) == 0})
	}
	return fields
}

// headers writes a block in one or more frames.
func (m *sim) headers(p *peer, id uint32, fields []hpack.HeaderField, last bool) {
	s := p.streams[id]
	s.sent = append(s.sent, fields)
	block := p.encode(fields)
	n := len(block)
	if m.r.IntN(3) == 0 {
		n = m.r.IntN(len(block) + 1)
	}
	par := xhttp2.HeadersFrameParam{StreamID: id, BlockFragment: block[:n], EndStream: last, EndHeaders: n == len(block)}
	if m.r.IntN(4) == 0 {
		par.PadLength = uint8(m.r.IntN(20))
	}
	if p == m.c && m.r.IntN(4) == 0 {
		par.Priority = xhttp2.PriorityParam{StreamDep: 0, Weight: 7}
	}
	_ = p.fr.WriteHeaders(par)
	for block = block[n:]; len(block) > 0; {
		n := 1 + m.r.IntN(len(block))
		_ = p.fr.WriteContinuation(id, n == len(block), block[:n])
		block = block[n:]
	}
	s.local = s.local || last
}

func (m *sim) open(p *peer) []uint32 {
	var ids []uint32
	for id, s := range p.streams {
		if !s.local && !s.reset {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// step lets a peer do something.
func (m *sim) step() {
	p := m.c
	if m.r.IntN(2) == 0 {
		p = m.s
	}
	ids := m.open(p)
	switch k := m.r.IntN(12); {
	case p == m.c && k < 4 && len(p.goAways) == 0 || p == m.c && k < 1: // sometimes in spite of a GOAWAY
		id := m.next
		m.next += 2
		p.streams[id] = &end{window: 65535}
		agent, kind := "ua", "text/plain"
		if m.r.IntN(8) == 0 {
			agent = "probe"
		}
		if m.r.IntN(2) == 0 {
			kind = "application/grpc"
		}
		m.headers(p, id, m.extra([]hpack.HeaderField{{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: "/p?" + m.word()}, {Name: ":authority", Value: "h"}, {Name: "user-agent", Value: agent}, {Name: "content-type", Value: kind}}), m.r.IntN(3) == 0)
	case k == 10:
		data := [8]byte{byte(m.r.IntN(3))}
		p.pings = append(p.pings, data)
		_ = p.fr.WritePing(false, data)
	case k == 11 && m.r.IntN(6) == 0 && p == m.s:
		last := uint32(1<<31 - 1)
		if n := m.r.IntN(2); n == 1 {
			last = m.highest(m.s)
		}
		last = min(last, m.appLast)
		m.appLast = last
		_ = p.fr.WriteGoAway(last, 0, []byte(m.word()))
	case len(ids) == 0:
	case k < 7:
		id := ids[m.r.IntN(len(ids))]
		s := p.streams[id]
		if p == m.s && len(s.sent) == 0 {
			if m.r.IntN(4) == 0 {
				m.headers(p, id, m.extra([]hpack.HeaderField{{Name: ":status", Value: "103"}}), false)
				return
			}
			m.headers(p, id, m.extra([]hpack.HeaderField{{Name: ":status", Value: "200"}, {Name: "content-type", Value: "application/grpc"}}), m.r.IntN(8) == 0)
			return
		}
		n := m.r.IntN(40)
		if int64(n+30) > p.window || int64(n+30) > s.window {
			return
		}
		pad := []byte(nil)
		if m.r.IntN(3) == 0 {
			pad = make([]byte, m.r.IntN(20))
		}
		last := m.r.IntN(6) == 0
		body := make([]byte, n)
		if n >= 5 && m.r.IntN(2) == 0 {
			body[4] = byte(n - 5) // a whole message
		}
		before := p.out.Len()
		_ = p.fr.WriteDataPadded(id, last, body, pad)
		p.window -= int64(p.out.Len() - before - 9)
		s.window -= int64(p.out.Len() - before - 9)
		s.local = last
	case k == 7:
		id := ids[m.r.IntN(len(ids))]
		if s := p.streams[id]; len(s.sent) > 0 && (p == m.c || final(s.sent)) {
			m.headers(p, id, m.extra([]hpack.HeaderField{{Name: "grpc-status", Value: "0"}}), true)
		}
	case k == 8 && m.r.IntN(3) == 0:
		id := ids[m.r.IntN(len(ids))]
		p.streams[id].reset, p.streams[id].local = true, true
		_ = p.fr.WriteRSTStream(id, xhttp2.ErrCodeCancel)
	case k == 9:
		n := uint32(1 + m.r.IntN(200))
		p.granted += int64(n)
		_ = p.fr.WriteWindowUpdate(0, n)
	}
}

func final(blocks [][]hpack.HeaderField) bool {
	for _, b := range blocks {
		if b[0].Name == ":status" && b[0].Value == "200" {
			return true
		}
	}
	return false
}

func (m *sim) highest(p *peer) uint32 {
	n := uint32(0)
	for id := range p.streams {
		n = max(n, id)
	}
	return n
}
