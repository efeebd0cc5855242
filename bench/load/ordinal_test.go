package load

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestOrdinal(t *testing.T) {
	const none = -1
	for _, tt := range []struct {
		name string
		own  []int64
		want []uint64
	}{
		{"one by one", []int64{7, 8, 9}, []uint64{7, 8, 9}},
		{"one is lost early", []int64{1, 3, 4, 5}, []uint64{1, 2, 4, 5}}, // 3 is missing, for 2
		{"one is lost late", []int64{1, 2, 4}, []uint64{1, 2, 4}},
		{"one comes twice early", []int64{1, 1, 2}, []uint64{1, 2, 2}},
		{"one comes twice late", []int64{1, 2, 2}, []uint64{1, 2, 2}},
		{"times", []int64{1700000000, 1700000013, 1700000020, 1700000021}, []uint64{1700000000, 1700000001, 1700000002, 1700000003}},
		{"downwards", []int64{9, 8, 7, 6}, []uint64{9, 10, 11, 12}},
		{"always the same", []int64{5, 5, 5, 5}, []uint64{5, 6, 7, 8}},
		{"none", []int64{none, none, none}, []uint64{0, 1, 2}},
		{"now and then", []int64{1, none, 2, none}, []uint64{1, 2, 3, 4}},
		{"a leap", []int64{1, 2, 1 << 40, 1<<40 + 1}, []uint64{1, 2, 3, 4}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var o ordinal
			var got []uint64
			for _, own := range tt.own {
				got = append(got, o.of(uint64(own), own != none))
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}
