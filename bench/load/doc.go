// Package load is ordinary clients with a ledger each: HTTP/1, HTTP/2, gRPC, WebSocket, server-sent events and raw TCP
// against any server that speaks them.
//
// Requests arrive in an open loop: at moments that do not depend on the answers, with latency counted from the moment a
// request was due. A server that stalls for two seconds is seen to stall for two seconds by every request that was due
// meanwhile (coordinated omission). Sessions are long-lived: each sends a numbered message at an interval, so that a lost, a
// doubled and a reordered one show.
//
// No driver retries by itself: what a library would hide is what this is about. With retry=library the library may, and
// each retry is counted as an outcome of its own.
package load
