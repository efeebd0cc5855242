package tlsterm

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
)

// Reasons of failed handshakes: the values of a metric's label.
const (
	ReasonTimeout        = "timeout"
	ReasonNotTLS         = "not_tls"
	ReasonPeerClosed     = "peer_closed"
	ReasonVersion        = "version"
	ReasonNoProtocol     = "no_shared_protocol"          // ALPN
	ReasonBadCertificate = "bad_certificate"             // the peer refused ours, or we refused the app's
	ReasonClientMissing  = "client_certificate_missing"  // none was sent
	ReasonClientRejected = "client_certificate_rejected" // not signed by client_ca, expired, not for clients
	ReasonOther          = "other"
)

// Reasons is the closed list.
func Reasons() []string {
	return []string{ReasonTimeout, ReasonNotTLS, ReasonPeerClosed, ReasonVersion, ReasonNoProtocol, ReasonBadCertificate, ReasonClientMissing, ReasonClientRejected, ReasonOther}
}

// HandshakeError says why a handshake failed.
type HandshakeError struct {
	Reason   string
	ByPeer   bool // the peer gave up; otherwise we did
	Rejected bool // we refused the peer's certificate
	Timeout  bool
	Err      error
}

func (e *HandshakeError) Error() string { return e.Err.Error() }

// Unwrap gives crypto/tls's error.
func (e *HandshakeError) Unwrap() error { return e.Err }

// Alerts that a peer sends (RFC 8446 section 6.2): those about certificates, and the rest that we tell apart.
const (
	alertBadCertificate     = 42
	alertCertificateUnknown = 46
	alertUnknownCA          = 48
	alertProtocolVersion    = 70
	alertNoALPN             = 120
)

func failure(err error, late bool) *HandshakeError {
	e := &HandshakeError{Reason: ReasonOther, Err: err}
	var alert tls.AlertError
	var op *net.OpError
	var notTLS tls.RecordHeaderError
	var verify *tls.CertificateVerificationError
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	text := err.Error()
	switch {
	case late || errors.Is(err, context.DeadlineExceeded):
		e.Reason, e.Timeout = ReasonTimeout, true
	case errors.As(err, &notTLS):
		e.Reason = ReasonNotTLS
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		e.Reason, e.ByPeer = ReasonPeerClosed, true
	case errors.As(err, &op) && op.Op == "remote error": // an alert
		e.ByPeer = true
		if errors.As(err, &alert) {
			switch {
			case alert >= alertBadCertificate && alert <= alertCertificateUnknown, alert == alertUnknownCA:
				e.Reason = ReasonBadCertificate
			case alert == alertProtocolVersion:
				e.Reason = ReasonVersion
			case alert == alertNoALPN:
				e.Reason = ReasonNoProtocol
			}
		}
	case strings.Contains(text, "client didn't provide a certificate"):
		e.Reason, e.Rejected = ReasonClientMissing, true
	case strings.Contains(text, "failed to verify certificate") && strings.Contains(text, "client"), strings.Contains(text, "client certificate"):
		e.Reason, e.Rejected = ReasonClientRejected, true
	case errors.As(err, &verify), errors.As(err, &unknown), errors.As(err, &name):
		e.Reason, e.Rejected = ReasonBadCertificate, true
	case strings.Contains(text, "unsupported version"), strings.Contains(text, "protocol version"):
		e.Reason = ReasonVersion
	case strings.Contains(text, "unsupported application protocols"), strings.Contains(text, "no application protocol"):
		e.Reason = ReasonNoProtocol
	}
	return e
}
