package load

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestCauseOf(t *testing.T) {
	op := func(what string, e syscall.Errno) error {
		return fmt.Errorf("wrapped: %w", &net.OpError{Op: what, Err: os.NewSyscallError("x", e)})
	}
	for _, tt := range []struct {
		err   error
		begun bool
		want  Outcome
		wire  string
	}{
		{op("dial", syscall.ECONNREFUSED), false, Refused, "RST to SYN"},
		{op("dial", syscall.ECONNRESET), false, Refused, TurnedAway},
		{op("dial", syscall.ETIMEDOUT), false, Unreachable, "no way there"},
		{op("read", syscall.ECONNRESET), false, Reset, "RST"},
		{op("write", syscall.EPIPE), false, Reset, "RST"},
		{io.EOF, false, Closed, "FIN"},
		{io.ErrUnexpectedEOF, true, Truncated, "FIN inside the answer"},
		{context.DeadlineExceeded, false, Timeout, "nothing came"},
		{http2.StreamError{Code: http2.ErrCodeRefusedStream}, false, StreamRefused, "RST_STREAM REFUSED_STREAM"},
		{http2.StreamError{Code: http2.ErrCodeCancel}, false, StreamReset, "RST_STREAM CANCEL"},
	} {
		if o, wire := causeOf(tt.err, tt.begun); o != tt.want || wire != tt.wire {
			t.Errorf("%v: %s, %q; want %s, %q", tt.err, o, wire, tt.want, tt.wire)
		}
	}
	for text, want := range map[string]Outcome{
		`connection error: desc = "transport: Error while dialing: dial tcp: connect: connection refused"`:       Refused,
		`connection error: desc = "transport: Error while dialing: dial tcp: connect: connection reset by peer"`: Refused,
		`error reading from server: read tcp 127.0.0.1:1->127.0.0.1:2: read: connection reset by peer`:           Reset,
		`error reading from server: EOF`:                                                         Closed,
		`the connection is draining`:                                                             StreamRefused,
		`error reading server preface: http2: frame too large`:                                   Protocol,
		`unexpected HTTP status code received from server: 503 (Service Unavailable); transport`: Status,
	} {
		if o, wire := grpcCause(status.Error(codes.Unavailable, text), false); o != want {
			t.Errorf("%s: %s, %s, want %s", text, o, wire, want)
		}
		if o, _ := grpcCause(status.Error(codes.Unavailable, text), true); o != GRPCStatus {
			t.Errorf("%s, said by the server: %s, want %s", text, o, GRPCStatus)
		}
	}
	if o, _ := grpcCause(status.Error(codes.DeadlineExceeded, "x"), true); o != GRPCStatus {
		t.Errorf("a deadline of the server's own: %s", o)
	}
}
