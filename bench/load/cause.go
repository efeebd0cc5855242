package load

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TurnedAway is what was seen of a connection that was reset before its client knew that it had one: a listener that closes resets what waits in
// its queue (Linux, inet_csk_listen_stop). Nothing was sent, so it is a refusal. The client never learns its own port then.
const TurnedAway = "RST before anything was sent"

// causeOf turns a client's error into an outcome and what was seen on the wire. begun says that a part of the answer had
// come.
func causeOf(err error, begun bool) (Outcome, string) {
	var stream http2.StreamError
	var goaway http2.GoAwayError //nolint:staticcheck // net/http's ClientConn hides GOAWAY behind an untyped error
	var conn http2.ConnectionError
	var alert tls.AlertError
	var cert *tls.CertificateVerificationError
	var unknown x509.UnknownAuthorityError
	var record tls.RecordHeaderError
	var op *net.OpError
	switch {
	case err == nil:
		return OK, ""
	case errors.As(err, &stream):
		if stream.Code == http2.ErrCodeRefusedStream {
			return StreamRefused, "RST_STREAM REFUSED_STREAM"
		}
		return StreamReset, "RST_STREAM " + stream.Code.String()
	case errors.As(err, &goaway):
		return StreamRefused, fmt.Sprintf("GOAWAY last=%d %s", goaway.LastStreamID, goaway.ErrCode)
	case strings.Contains(err.Error(), "graceful shutdown GOAWAY"): // x/net's, of a stream above the last id: it has no type
		return StreamRefused, "GOAWAY below this stream"
	case errors.As(err, &conn):
		return Protocol, "connection error " + http2.ErrCode(conn).String()
	case errors.As(err, &alert), errors.As(err, &cert), errors.As(err, &unknown), errors.As(err, &record):
		return TLS, err.Error()
	case errors.Is(err, syscall.ECONNREFUSED):
		return Refused, "RST to SYN"
	case errors.Is(err, syscall.ECONNRESET) && errors.As(err, &op) && op.Op == "dial":
		return Refused, TurnedAway
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return Reset, "RST"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.ETIMEDOUT):
		return Unreachable, "no way there"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return Timeout, "nothing came"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		if begun {
			return Truncated, "FIN inside the answer"
		}
		return Closed, "FIN"
	}
	if errors.As(err, &op) && op.Op == "dial" {
		return Unreachable, err.Error()
	}
	return Protocol, err.Error()
}

// grpcCause reads grpc-go's status. The transport's own errors have a status, too, and only their text tells what they were;
// what a server has said in trailers (said) is a status and nothing else, whatever its text.
func grpcCause(err error, said bool) (Outcome, string) {
	s := status.Convert(err)
	text := s.Message()
	wire := fmt.Sprintf("grpc-status %d %s", s.Code(), text)
	switch {
	case s.Code() == codes.OK:
		return OK, ""
	case errors.Is(err, io.EOF): // grpc-go's, now and then, where a stream is refused while its message is handed over
		return StreamReset, "the stream ended before its message was sent"
	case said:
		return GRPCStatus, wire
	case strings.Contains(text, "connection refused"):
		return Refused, "RST to SYN"
	case strings.Contains(text, "Error while dialing") && strings.Contains(text, "connection reset by peer"):
		return Refused, TurnedAway
	case strings.Contains(text, "error reading from server: EOF"), strings.Contains(text, "server closed the stream without sending trailers"):
		return Closed, "FIN"
	case strings.Contains(text, "connection reset by peer"), strings.Contains(text, "broken pipe"):
		return Reset, "RST"
	case strings.Contains(text, "REFUSED_STREAM"), strings.Contains(text, "the connection is draining"):
		return StreamRefused, wire
	case strings.Contains(text, "stream terminated by RST_STREAM"):
		return StreamReset, text
	case strings.HasPrefix(text, "unexpected HTTP status code received from server: "):
		return Status, "HTTP" + strings.TrimPrefix(text[:min(len(text), len("unexpected HTTP status code received from server: 503"))], "unexpected HTTP status code received from server:")
	case s.Code() == codes.DeadlineExceeded:
		return Timeout, "nothing came"
	}
	return Protocol, wire
}
