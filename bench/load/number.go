package load

import (
	"encoding/binary"
	"errors"
	"math"
	"strconv"
	"sync"
	"time"
)

// errNumber is an answer that carries no number of ours.
var errNumber = errors.New("an answer that is no message of ours")

// numbered is a message of at least eight bytes that begins with its number.
func numbered(n uint64, size int) []byte {
	b := make([]byte, max(size, 8))
	binary.BigEndian.PutUint64(b, n)
	return b
}

func numberOf(b []byte) (uint64, error) {
	if len(b) < 8 {
		return 0, errNumber
	}
	return binary.BigEndian.Uint64(b), nil
}

// leading is the decimal number that a text begins with, or -1.
func leading(b []byte) int64 {
	end := 0
	for end < len(b) && end < 18 && '0' <= b[end] && b[end] <= '9' {
		end++
	}
	n, err := strconv.ParseInt(string(b[:end]), 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// allOfThem is a collecting server's answer without a number.
const allOfThem = math.MaxUint64

// numbers follows the numbers of a session's messages.
type numbers struct {
	collects bool         // no message has an answer of its own
	listens  bool         // the server sends by itself
	foreign  bool         // the messages are somebody else's: which one an answer is for nobody knows, nor how many each has
	gaps     func(by int) // hears of messages that are missing, and of those that come late; nil: nobody asks

	mu      sync.Mutex
	m       Messages
	next    uint64               // the lowest that did not come yet, but for missing
	missing map[uint64]time.Time // since when that is known
	more    uint64               // missing ones that are too many to be remembered
	sent    map[uint64]time.Time
	last    time.Time     // of a session that only listens: when it heard something
	gap     time.Duration // and for how long it heard nothing at most
}

// maxMissing bounds the gaps that are remembered.
const maxMissing = 10_000

func (n *numbers) sending(seq uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.m.Sent++
	if !n.collects && len(n.sent) < maxMissing {
		n.sent[seq] = time.Now()
	}
}

// collected takes the one answer of a server that collects: how many it has taken.
func (n *numbers) collected(count uint64) Outcome {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.m.Received = min(count, n.m.Sent)
	if count > n.m.Sent && count != allOfThem {
		n.m.Duplicated = count - n.m.Sent
		return MessageTwice
	}
	return OK
}

func (n *numbers) missed(by int) {
	if n.gaps != nil {
		n.gaps(by)
	}
}

// got takes a message's number and says what is wrong with it, if anything is.
func (n *numbers) got(seq uint64) Outcome {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.foreign {
		n.m.Received++
		delete(n.sent, seq)
		n.next = max(n.next, seq+1)
		return OK
	}
	if !n.listens && seq >= n.m.Sent {
		return Wrong // nobody has sent that
	}
	n.m.Received++
	delete(n.sent, seq)
	switch {
	case seq == n.next:
		n.next++
	case seq > n.next:
		now := time.Now()
		for i := n.next; i < seq; i++ {
			if len(n.missing) == maxMissing {
				n.more += seq - i
				break
			}
			n.missing[i] = now
		}
		n.missed(int(seq - n.next))
		n.next = seq + 1
	default:
		if _, was := n.missing[seq]; was {
			delete(n.missing, seq)
			n.missed(-1)
			n.m.Reordered++
			return MessageLate
		}
		n.m.Duplicated++
		return MessageTwice
	}
	return OK
}

// owed says for how long the oldest message has had no answer although nothing behind it was answered.
func (n *numbers) owed() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	var longest time.Duration
	for seq, at := range n.sent {
		if seq >= n.next {
			longest = max(longest, time.Since(at))
		}
	}
	return longest
}

// heard takes a message of a session that only listens: its numbers begin where the server is.
func (n *numbers) heard(seq uint64) Outcome {
	n.mu.Lock()
	now := time.Now()
	if n.last.IsZero() {
		n.next = seq
	} else {
		n.gap = max(n.gap, now.Sub(n.last))
	}
	n.last = now
	n.mu.Unlock()
	return n.got(seq)
}

// silent says whether a session that only listens has heard nothing for much longer than ever before, and longer than limit.
func (n *numbers) silent(limit time.Duration) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.gap > 0 && time.Since(n.last) > max(limit, 4*n.gap)
}

// settle closes the numbers: what is missing behind an answered message was lost, and is named; what was under way when the
// session broke is part of that, unless the end was ours.
func (n *numbers) settle(l *Ledger, e *Entry, ours bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	under := uint64(0)
	switch {
	case n.listens:
		n.m.Sent = n.m.Received - n.m.Duplicated + uint64(len(n.missing)) + n.more
	case !n.collects:
		under = n.m.Sent - min(n.m.Sent, n.next)
	default:
		under = n.m.Sent - n.m.Received
		if e.Outcome == OK && under > 0 { // it has answered, with too few
			for range under {
				l.side(e.At, MessageLost, "the server's count", e.Local)
			}
		}
	}
	n.m.Lost = uint64(len(n.missing)) + n.more
	n.missed(-int(n.m.Lost))
	if e.Outcome == Told || ours { // they crossed the goodbye: their client knows that they have no answer, and may send them again
		n.m.Unanswered = under
	} else {
		n.m.Lost += under
	}
	e.Messages = n.m
	for _, since := range n.missing {
		l.side(since, MessageLost, "", e.Local)
	}
	for range n.more {
		l.side(e.At, MessageLost, "", e.Local)
	}
}
