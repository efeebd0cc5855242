// Package relay moves bytes between a client socket and an app socket, verbatim, in order, both halves independently.
//
// Each Loop is one goroutine that owns an epoll instance and all state of its links. The epoll descriptor itself sits in
// Go's own poller, so that a loop parks like any goroutine: a blocking epoll_wait would cost twice the CPU at low rates.
// Everything is level-triggered; one read buffer serves a whole loop; a link holds memory only for bytes that the other
// side has not taken yet, and its reader is paused meanwhile.
//
// The package knows no protocol, tracker or logger: an Owner sees the bytes, may edit them, and is told what happened.
// Linux only.
package relay
