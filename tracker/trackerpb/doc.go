// Package trackerpb is the gRPC form of a sidecar's account: lastcall.v1.Tracker, served on the admin address.
//
// The Go code is made of lastcall/v1/tracker.proto by buf.
package trackerpb

//go:generate go tool -modfile=../../.ci/tools.mod buf generate
