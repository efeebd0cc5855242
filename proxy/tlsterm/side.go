package tlsterm

import (
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Cause is what an end of the plaintext stands for.
type Cause int32

// Causes.
const (
	Clean     Cause = iota // close_notify (RFC 8446 section 6.1)
	Truncated              // FIN without it: what came may not be all that was sent
	Reset                  // RST
	Failed                 // a handshake that failed, an alert, a record that can't be decrypted
)

// Side is the loop's view of one TLS connection: its end of the socket pair, and what the pair can't carry.
type Side struct {
	fd    int
	raw   rawConn
	cause atomic.Int32
	abort atomic.Bool
	fail  atomic.Pointer[HandshakeError]
}

// Failure is why the handshake failed; nil: it did not. It is set before the EOF that tells of it can be read.
func (s *Side) Failure() *HandshakeError { return s.fail.Load() }

// rawConn is the TCP connection below.
type rawConn interface {
	SetLinger(sec int) error
	SetReadDeadline(t time.Time) error
	SetWriteDeadline(t time.Time) error
	CloseWrite() error
	Close() error
}

// FD is the loop's end of the pair: non-blocking, and the caller's to close.
func (s *Side) FD() int { return s.fd }

// Cause tells what an EOF read from FD means. It is set before the EOF can be read.
func (s *Side) Cause() Cause { return Cause(s.cause.Load()) }

// Err is Cause as an error number for whoever relays: 0 for a clean end.
func (s *Side) Err() syscall.Errno {
	switch s.Cause() {
	case Truncated:
		return unix.ECONNABORTED
	case Reset:
		return unix.ECONNRESET
	case Failed:
		return unix.EPROTO
	case Clean:
	}
	return 0
}

// lastBytes is how long a peer has to take what was written before the loop closed its end.
const lastBytes = 10 * time.Second

// linger is how long a peer has to answer our close_notify with its own.
const linger = time.Second

// Closing says that the loop is about to close FD; with rst the peer must see a reset and no close_notify. It never blocks.
func (s *Side) Closing(rst bool) {
	if rst {
		s.abort.Store(true)
		_ = s.raw.SetLinger(0)
		_ = s.raw.Close() // both goroutines end by it
		return
	}
	now := time.Now()
	_ = s.raw.SetReadDeadline(now.Add(linger))
	_ = s.raw.SetWriteDeadline(now.Add(lastBytes))
}

func (s *Side) ended(c Cause) { s.cause.CompareAndSwap(int32(Clean), int32(c)) }
