package load

import (
	"testing"
	"time"
)

// Every message without an answer is lost, also where there are more than can be remembered one by one; while the session is
// open the gaps are known.
func TestEveryLossIsCounted(t *testing.T) {
	const sent = 3 * maxMissing
	for name, tt := range map[string]struct {
		answers []uint64
		gaps    int
		lost    uint64
	}{
		"all between two":   {[]uint64{0, sent - 1}, sent - 2, sent - 2},
		"all but the first": {[]uint64{0}, 0, sent - 1},
		"one comes late":    {[]uint64{2, 1, sent - 1}, sent - 3, sent - 3},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(Spec{Kind: WebSocket}, time.Now(), &books{})
			n := &numbers{gaps: l.missing, missing: map[uint64]time.Time{}, sent: map[uint64]time.Time{}}
			for i := range uint64(sent) {
				n.sending(i)
			}
			for _, a := range tt.answers {
				n.got(a)
			}
			if a := l.Account(); a.Gaps != tt.gaps {
				t.Errorf("gaps: %d, want %d", a.Gaps, tt.gaps)
			}
			var e Entry
			n.settle(l, &e, false)
			if a := l.Account(); e.Messages.Lost != tt.lost || a.Gaps != 0 || e.Messages.Sent != e.Messages.Received+e.Messages.Lost {
				t.Errorf("%+v, want %d lost; gaps %d", e.Messages, tt.lost, a.Gaps)
			}
		})
	}
}

// A server whose messages are not ours may say more than it is asked, and before it is asked: nothing of that is wrong, and
// nothing is owed.
func TestForeignAnswers(t *testing.T) {
	l := newLedger(Spec{Kind: GRPCStream}, time.Now(), &books{})
	n := &numbers{foreign: true, gaps: l.missing, missing: map[uint64]time.Time{}, sent: map[uint64]time.Time{}}
	for i := range uint64(3) {
		if o := n.got(2 * i); o != OK {
			t.Errorf("a word before the question: %s", o)
		}
		n.sending(i)
		if o := n.got(2*i + 1); o != OK {
			t.Errorf("its answer: %s", o)
		}
	}
	if n.owed() != 0 {
		t.Error("something is owed")
	}
	e := Entry{Outcome: Closed}
	n.settle(l, &e, false)
	if m := e.Messages; m.Sent != 3 || m.Received != 6 || m.Lost != 0 {
		t.Errorf("%+v", m)
	}
}
