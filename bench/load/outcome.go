package load

// Outcome is how a request or a session ended, as its client saw it: a closed list.
type Outcome string

// Outcomes.
const (
	OK             Outcome = "ok"             // a whole answer; a session that we ended ourselves
	Told           Outcome = "told"           // a session that the server ended by its protocol's goodbye
	Status         Outcome = "status"         // HTTP 4xx or 5xx; a WebSocket close code that tells of a fault
	GRPCStatus     Outcome = "grpc_status"    // a gRPC status other than OK, in trailers
	Refused        Outcome = "refused"        // nobody listens
	Unreachable    Outcome = "unreachable"    // no way there, or no answer to SYN
	Reset          Outcome = "reset"          // RST
	Closed         Outcome = "closed"         // FIN before the answer began, or where more was due
	Truncated      Outcome = "truncated"      // FIN inside an answer
	StreamRefused  Outcome = "stream_refused" // HTTP/2 REFUSED_STREAM, or above a GOAWAY's last id: safe to retry
	StreamReset    Outcome = "stream_reset"   // HTTP/2 RST_STREAM with another code
	Timeout        Outcome = "timeout"        // no answer within the limit
	TLS            Outcome = "tls"            // the handshake failed
	Protocol       Outcome = "protocol"       // bytes that are not the protocol's
	Wrong          Outcome = "wrong_answer"   // an answer that nobody asked for: one too many, or another's
	MessageLost    Outcome = "message_lost"   // a session's message that was never answered although later ones were
	MessageTwice   Outcome = "message_duplicated"
	MessageLate    Outcome = "message_reordered"
	RetriedLibrary Outcome = "library_retried" // not an end: an attempt that the client's library repeated (retry=library)
	Overflow       Outcome = "overflow"        // not sent: more requests were waiting than the driver holds
)

// Outcomes is the closed list.
func Outcomes() []Outcome {
	return []Outcome{OK, Told, Status, GRPCStatus, Refused, Unreachable, Reset, Closed, Truncated, StreamRefused, StreamReset, Timeout, TLS, Protocol, Wrong, MessageLost, MessageTwice, MessageLate, RetriedLibrary, Overflow}
}

// Good says whether an outcome is what a client hopes for.
func (o Outcome) Good() bool { return o == OK || o == Told || o == RetriedLibrary }
