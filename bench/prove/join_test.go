package prove

import (
	"testing"
	"time"

	"github.com/lastcall-proxy/lastcall/bench/load"
)

// A reset without a record is unexplained, save at the moment when the listeners closed and nothing was missed: then the kernel
// has reset what nobody had accepted.
func TestResetWithoutRecord(t *testing.T) {
	end := time.Now()
	gone := func(dropped uint64) *watched {
		return &watched{phases: []phaseAt{{"draining", end.Add(-time.Second)}, {"done", end}}, dropped: dropped}
	}
	for name, tt := range map[string]struct {
		sidecar   *watched
		began, at time.Duration
		want      string
	}{
		"at the end":          {gone(0), -time.Millisecond, time.Millisecond, byTarget},
		"long before":         {gone(0), -time.Minute, -time.Minute, unexplained},
		"long after":          {gone(0), time.Minute, time.Minute, unexplained},
		"an old connection":   {gone(0), -time.Minute, time.Millisecond, unexplained},
		"events were missed":  {gone(1), -time.Millisecond, time.Millisecond, unexplained},
		"it is still running": {&watched{phases: gone(0).phases[:1]}, -time.Millisecond, time.Millisecond, unexplained},
		"it died":             {&watched{gone: end}, -time.Millisecond, time.Millisecond, byTarget},
	} {
		e := load.Entry{Outcome: load.Reset, Began: end.Add(tt.began), At: end.Add(tt.at), Local: "127.0.0.1:1"}
		if got, _ := newJoiner([]*watched{tt.sidecar}).attribute(&e); got != tt.want {
			t.Errorf("%s: by %s, want %s", name, got, tt.want)
		}
	}
}
