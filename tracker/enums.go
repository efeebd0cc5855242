package tracker

// The closed enums of records, labels and the API. Each has a String (the name users see), and an All… list in
// declaration order; drift between the constants and the names fails TestEnumNames.

// Direction tells which way a connection was made, seen from the pod.
type Direction uint8

// Directions.
const (
	Inbound  Direction = iota // to the workload
	Outbound                  // from the workload
	numDirections
)

// Kind is the protocol of a stream, or of a connection.
type Kind uint8

// Kinds. An opaque connection is one stream of kind TCP or TLS.
const (
	KindHTTP1 Kind = iota
	KindHTTP2
	KindGRPC
	KindWebSocket
	KindSSE
	KindTunnel // CONNECT, or an upgrade to a protocol that is not read
	KindTCP
	KindTLS // passed through
	numKinds
)

// Fate is how a connection or stream ended. The zero value means that it is still open.
type Fate uint8

// Fates.
const (
	FateOpen    Fate = iota // not a fate: still open
	Completed               // ended by its own protocol, nothing missing
	Drained                 // left after our farewell with nothing in flight
	Aborted                 // client or app broke it off with something in flight
	Ended                   // lastcall ended it politely in the closing window; the peer was told by its protocol
	Cut                     // lastcall closed it at the deadline; the peer was not told
	Rejected                // refused by lastcall: late arrival, over the connection limit, client certificate
	Unreachable             // the app could not be reached
	TimedOut                // one of lastcall's own timeouts (idle, handshake, dial)
	Kicked                  // closed through the API
	Failed                  // an error inside lastcall
	Lost                    // the process died before it could tell; found on the next start
	numFates
)

// Party is who did something.
type Party uint8

// Parties.
const (
	ByUnknown Party = iota
	ByClient
	ByApp
	ByLastcall
	ByOperator
	numParties
)

// How is the means by which something ended.
type How uint8

// Means.
const (
	HowUnknown  How = iota
	HowFIN          // FIN
	HowRST          // RST, or a socket error that stands for one; HTTP/2: RST_STREAM
	HowProtocol     // the protocol's own end: a whole exchange, a WebSocket Close, END_STREAM
	HowTimeout      // a timer
	HowExit         // lastcall went
	numHows
)

// Stage is how far a connection or stream had come.
type Stage uint8

// Stages.
const (
	StageConnect   Stage = iota // the app is being dialled
	StageHandshake              // TLS handshake, PROXY header
	StageIdle                   // nothing in flight
	StageRequest                // until the request is whole
	StageResponse               // after that
	StageTunnel                 // both ways open
	numStages
)

// Class tells ordinary traffic from the cluster's own.
type Class uint8

// Classes. Probes and scrapes never hold a drain.
const (
	ClassNormal Class = iota
	ClassProbe
	ClassScrape
	numClasses
)

// WaitingOn says whose turn it is.
type WaitingOn uint8

// Whose turn it is.
const (
	WaitingNobody WaitingOn = iota // idle connection
	WaitingClient                  // request not yet complete, or it does not read
	WaitingApp                     // dial, response not yet complete, or it does not read
	WaitingEither                  // both ways open
	numWaitings
)

// Phase is where the process is in its drain. It moves forward only, but for a cancel, which leads back to Serving.
type Phase uint8

// Phases.
const (
	Serving Phase = iota
	Lameduck
	Draining
	Closing
	Cutting
	Done
	numPhases
)

// What tells the two kinds of record apart.
type What uint8

// Record kinds.
const (
	WhatConnection What = iota
	WhatStream
	numWhats
)

// Answer is what a late arrival got.
type Answer uint8

// Answers. AnswerNone means that none was given yet.
const (
	AnswerNone Answer = iota
	AnswerServed
	AnswerRejected
	AnswerRefused
	numAnswers
)

// FarewellKind is the goodbye that a connection was given.
type FarewellKind uint8

// Farewells. GOAWAY is reserved for HTTP/2.
const (
	FarewellNone            FarewellKind = iota
	FarewellConnectionClose              // HTTP/1 Connection: close
	FarewellFIN                          // an idle HTTP/1 connection, or an opaque one, was half-closed
	FarewellGoAway
	FarewellWebSocketClose
	FarewellStreamEnd // an SSE stream's clean end
	numFarewells
)

var (
	directionNames = [numDirections]string{"inbound", "outbound"}
	kindNames      = [numKinds]string{"http1", "http2", "grpc", "websocket", "sse", "tunnel", "tcp", "tls"}
	fateNames      = [numFates]string{"", "completed", "drained", "aborted", "ended", "cut", "rejected", "unreachable", "timed_out", "kicked", "failed", "lost"}
	partyNames     = [numParties]string{"unknown", "client", "app", "lastcall", "operator"}
	howNames       = [numHows]string{"unknown", "fin", "rst", "protocol", "timeout", "exit"}
	stageNames     = [numStages]string{"connect", "handshake", "idle", "request", "response", "tunnel"}
	classNames     = [numClasses]string{"normal", "probe", "scrape"}
	waitingNames   = [numWaitings]string{"nobody", "client", "app", "either"}
	phaseNames     = [numPhases]string{"serving", "lameduck", "draining", "closing", "cut", "done"}
	whatNames      = [numWhats]string{"connection", "stream"}
	answerNames    = [numAnswers]string{"", "served", "rejected", "refused"}
	farewellNames  = [numFarewells]string{"", "connection_close", "fin", "goaway", "websocket_close", "stream_end"}
)

func (d Direction) String() string    { return nameOf(directionNames[:], int(d)) }
func (k Kind) String() string         { return nameOf(kindNames[:], int(k)) }
func (f Fate) String() string         { return nameOf(fateNames[:], int(f)) }
func (p Party) String() string        { return nameOf(partyNames[:], int(p)) }
func (h How) String() string          { return nameOf(howNames[:], int(h)) }
func (s Stage) String() string        { return nameOf(stageNames[:], int(s)) }
func (c Class) String() string        { return nameOf(classNames[:], int(c)) }
func (w WaitingOn) String() string    { return nameOf(waitingNames[:], int(w)) }
func (p Phase) String() string        { return nameOf(phaseNames[:], int(p)) }
func (w What) String() string         { return nameOf(whatNames[:], int(w)) }
func (a Answer) String() string       { return nameOf(answerNames[:], int(a)) }
func (f FarewellKind) String() string { return nameOf(farewellNames[:], int(f)) }

func nameOf(names []string, i int) string {
	if i < 0 || i >= len(names) {
		return "invalid"
	}
	return names[i]
}
