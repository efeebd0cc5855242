// Package observe defines what a protocol parser is to the relay: an Observer sees the bytes of both flows of one
// connection as they pass, reports what they mean to a Sink, and names the places at which something may be put in or
// taken out.
//
// An observer never holds a byte back without a named reason, never does I/O, starts no goroutine, and keeps bounded
// state. It can lose track (bad bytes, a head over its limit); it then says so once through Sink.LostTrack, stays quiet
// for ever, and the traffic goes on. Without a reason to edit, what leaves equals what came, however the bytes were cut
// into reads.
//
// One package per protocol lies below this one. None of them knows the tracker, a logger or a socket.
package observe

// Direction names a flow by its source.
type Direction uint8

// The two flows of a connection.
const (
	FromClient Direction = iota // client to app
	FromApp                     // app to client
)

// Other is the opposite flow.
func (d Direction) Other() Direction { return d ^ 1 }

// String is "client" or "app": the flow's source.
func (d Direction) String() string {
	if d == FromClient {
		return "client"
	}
	return "app"
}

// Edit is one change to a flow. An observer returns edits only for a farewell, a rejection, a polite end or an opt-in
// header; in every other call it returns nil, which means "as it came".
//
// For the flow that is being fed, Off counts from the start of the bytes of this call (0 <= Off <= len(p)). For the
// other flow, and for edits that no bytes led to (Farewell, End …), Off is ignored: they apply behind all that this flow
// was given so far. Edits to one flow come in ascending Off and do not overlap.
type Edit struct {
	Dir    Direction
	Off    int
	Drop   int    // bytes of this call swallowed from Off on
	Insert []byte // bytes put in at Off, before what is dropped; valid until the observer's next call
}

// Kind is a protocol of a stream or connection. The names are the label values of metrics and records.
type Kind uint8

// The kinds an observer can tell.
const (
	TCP       Kind = iota // opaque bytes
	TLS                   // passed through: hello seen, the rest opaque
	HTTP1                 // an HTTP/1.x exchange
	SSE                   // an HTTP/1 response of type text/event-stream
	WebSocket             // after a 101 to a WebSocket handshake
	Tunnel                // after CONNECT, or a 101 to another protocol
	HTTP2                 // an HTTP/2 exchange
	GRPC                  // a gRPC call over HTTP/2, or of one of its relatives
)

// Observer is a push parser over both flows of one connection. All methods are called from one goroutine.
type Observer interface {
	// Data sees the next bytes of a flow before they are passed on. p is only valid during the call. The edits returned
	// (nil in nearly every call) are valid until the next call of any method.
	Data(dir Direction, p []byte) []Edit
	// EOF says that the source of a flow has sent FIN behind the bytes seen so far. Not called on a reset.
	EOF(dir Direction) []Edit
	// Tell changes what the observer may do at its boundaries from now on; it returns edits that can be made at once.
	Tell(o Order) []Edit
	// Idle reports that nothing is in flight and both flows stand at a boundary: no byte of a further request has come,
	// no byte of an answer is missing.
	Idle() bool
}

// Order is something the drain asks of an observer.
type Order uint8

// Orders are cumulative: a Reject after a Farewell keeps the farewell.
const (
	// OrderFarewell: say the protocol's goodbye at every next boundary where it may be said (HTTP/1: Connection: close in
	// the head of a final response with no further request behind it). Sink.Farewell reports each one said.
	OrderFarewell Order = iota
	// OrderReject: from now on requests that begin (first byte not yet seen) are late. They are held until their head is
	// complete, then put to Sink.Admit; what it refuses is swallowed and answered by the protocol's own refusal.
	OrderReject
	// OrderServe takes OrderFarewell and OrderReject back (a cancelled drain).
	OrderServe
	// OrderEnd: end what is in flight politely, at the next boundary at which that can be done without making truncated
	// data look whole (SSE: after a whole event; WebSocket: Close between frames). Sink.Ended reports it done, and which
	// side may now be sent FIN. Streams that have no polite end are left alone.
	OrderEnd
)

// Sink takes what an observer sees. It is called from inside the observer's methods; it must not call back.
type Sink interface {
	// Begin opens a stream of the given kind: its first byte was seen. The observer keeps the Stream and reports to it
	// until it calls Done, or until the connection ends (whoever owns the connection then ends what is left).
	Begin(k Kind) Stream
	// Protocol says what the connection itself turned out to speak (once proven, and again after an upgrade).
	Protocol(k Kind)
	// Hello tells a TLS ClientHello's facts. alpn is the client's list, comma-separated.
	Hello(sni, alpn, version string)
	// Admit decides on a late request whose head is complete: true lets it pass. Only asked after OrderReject.
	Admit(r *Request) bool
	// Farewell says that a goodbye has gone into a flow of this connection. own is true when the observer put it in,
	// false when the app or the client said it by itself (Connection: close, WebSocket Close).
	Farewell(own bool)
	// CloseAfter asks the owner to send FIN toward the client once all that was given to that flow is out, to read and
	// discard what the client still sends for a short while, and to close: a response with Connection: close, a refusal
	// or a polite end went out, and nothing may follow it.
	CloseAfter()
	// LostTrack says that the observer has stopped understanding and is quiet from now on. Streams that were in flight
	// stay open and count as opaque until the connection ends. Reason is one of the observer package's constants.
	LostTrack(reason string)
	// Broken says that the observer has lost track where its edits don't let it go quiet: the owner must close both sides.
	// Reason is as LostTrack's.
	Broken(reason string)
}

// Request is the head of a request as far as it is known to a record. Fields are valid during the call only.
type Request struct {
	Method, Path, Authority, UserAgent []byte // Path without its query
	Identity                           []byte // value of the header that names the client, where one is configured
	Settings                           []byte // of an Upgrade: h2c (RFC 7540 section 3.2.1)
	Kind                               Kind   // what it asks for: WebSocket for a WebSocket handshake, Tunnel for CONNECT, HTTP2 for h2c, else HTTP1, or HTTP2 or GRPC on such a connection
}

// Waiting says whose turn it is on a stream.
type Waiting uint8

// Whose turn it is.
const (
	WaitingClient Waiting = iota // the request is not complete
	WaitingApp                   // the response is not complete
	WaitingEither                // both ways open: tunnel, WebSocket, opaque
)

// Stage says how far a stream is.
type Stage uint8

// Stages of a stream.
const (
	StageRequest  Stage = iota // until the request is whole
	StageResponse              // after that
	StageTunnel                // both ways open
)

// Stream is one exchange as its owner keeps it.
type Stream interface {
	// Head gives the request's head. Called at most once.
	Head(r *Request)
	// Status gives the final response's status code (not 1xx, except 101).
	Status(code int)
	// GRPCStatus gives a gRPC call's status code, from its trailers.
	GRPCStatus(code int)
	// HalfClosed says that one side has ended its part of the stream while the other goes on (HTTP/2 END_STREAM).
	HalfClosed(dir Direction)
	// SetKind changes the kind: an SSE response, an upgrade done, or bytes that turned out not to be HTTP.
	SetKind(k Kind)
	// State says whose turn it is and how far the stream is, whenever that changes.
	State(w Waiting, s Stage)
	// Bytes adds n bytes of a flow to the stream's count.
	Bytes(dir Direction, n int)
	// Message counts one message (WebSocket data message, SSE event).
	Message(dir Direction)
	// Done ends the stream. The observer does not use it afterwards.
	Done(o Outcome)
}

// Outcome is how a stream ended by its own protocol or by an edit of ours.
type Outcome struct {
	Verdict   Verdict
	By        Direction // who ended it, for Completed and Aborted
	CloseCode int       // WebSocket
	Reset     string    // name of the HTTP/2 error code, if it was a RST_STREAM
	Reason    string    // a few words, "" if there is nothing to add
}

// Verdict is the observer's part of a fate: what the protocol shows.
type Verdict uint8

// Verdicts. What is not shown by the protocol (FIN, RST, timeouts) is not an observer's to tell.
const (
	Completed Verdict = iota // ended by its own protocol, nothing missing
	Aborted                  // broken off by its own protocol's means (WebSocket Close 1001, 1006…-like codes do not count: those are Completed)
	Ended                    // by us, politely, after OrderEnd
	Rejected                 // by us, as a late arrival
)
