package http2

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/http2/hpack"
)

// fields reads a head's kept literals back.
func (h *head) list(t *testing.T) []hpack.HeaderField {
	t.Helper()
	list, err := hpack.NewDecoder(0, nil).DecodeFull(h.fields)
	if err != nil {
		t.Fatalf("our literals: %v", err)
	}
	return list
}

// FuzzHPACK compares with x/net's decoder, block by block on one table: where both understand, they understand the same.
func FuzzHPACK(f *testing.F) {
	var buf strings.Builder
	enc := hpack.NewEncoder(&buf)
	var blocks []string
	for range 3 {
		buf.Reset()
		for _, kv := range [][2]string{{":method", "GET"}, {":path", "/x/y"}, {"user-agent", "curl/8"}, {"x-id", strings.Repeat("a", 90)}, {"cookie", "s=1"}} {
			_ = enc.WriteField(hpack.HeaderField{Name: kv[0], Value: kv[1], Sensitive: kv[0] == "cookie"})
		}
		blocks = append(blocks, buf.String())
	}
	enc.SetMaxDynamicTableSize(100)
	buf.Reset()
	_ = enc.WriteField(hpack.HeaderField{Name: "x-id", Value: "b"})
	f.Add(blocks[0], blocks[1], buf.String())
	f.Add("\x3f\xe1\x1f\x82", "\x40\x01a\x01b\xbe", "\x20\xbe")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		var d decoder
		var sc scratch
		x := hpack.NewDecoder(defaultTable, nil)
		for _, block := range []string{a, b, c} {
			var h head
			h.clear(true, "")
			err := d.decode([]byte(block), &sc, &h)
			want, xerr := x.DecodeFull([]byte(block))
			if xerr != nil || err != nil {
				// Integers of absurd length, and where a size update may stand, are for the receiver to judge.
				lenient := strings.Contains(block, "\xff\xff") || xerr != nil && strings.Contains(xerr.Error(), "size update")
				if (xerr == nil) != (err == nil) && !lenient {
					t.Fatalf("block %q: got %v, x/net says %v", block, err, xerr)
				}
				return
			}
			if h.tooLong() {
				return
			}
			if diff := cmp.Diff(want, h.list(t), cmp.Comparer(func(a, b []hpack.HeaderField) bool { return len(a) == 0 && len(b) == 0 || cmp.Equal(a, b) })); diff != "" {
				t.Fatalf("block %q (-x/net +ours):\n%s", block, diff)
			}
		}
	})
}

// A table never takes more than its size, whatever goes through it.
func TestTableIsBounded(t *testing.T) {
	var d decoder
	var sc scratch
	var h head
	var buf strings.Builder
	enc := hpack.NewEncoder(&buf)
	for i := range 5000 {
		buf.Reset()
		_ = enc.WriteField(hpack.HeaderField{Name: "x-" + strings.Repeat("n", i%40), Value: strings.Repeat("v", i%700)})
		h.clear(false, "")
		if err := d.decode([]byte(buf.String()), &sc, &h); err != nil {
			t.Fatal(err)
		}
	}
	if n := cap(d.table.buf) + 8*cap(d.table.entries); n > defaultTable+8*2*defaultTable/entryCost {
		t.Errorf("a table of %d bytes takes %d", defaultTable, n)
	}
}
