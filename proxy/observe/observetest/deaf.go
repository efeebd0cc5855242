package observetest

import "github.com/lastcall-proxy/lastcall/proxy/observe"

// Deaf is a Sink and a Stream that keeps nothing and allocates nothing: for counting what an observer allocates.
type Deaf struct{}

// Begin is observe.Sink's.
func (Deaf) Begin(observe.Kind) observe.Stream { return Deaf{} }

// Protocol is observe.Sink's.
func (Deaf) Protocol(observe.Kind) {}

// Hello is observe.Sink's.
func (Deaf) Hello(_, _, _ string) {}

// Admit is observe.Sink's.
func (Deaf) Admit(*observe.Request) bool { return true }

// Farewell is observe.Sink's.
func (Deaf) Farewell(bool) {}

// CloseAfter is observe.Sink's.
func (Deaf) CloseAfter() {}

// LostTrack is observe.Sink's.
func (Deaf) LostTrack(string) {}

// Broken is observe.Sink's.
func (Deaf) Broken(string) {}

// Head is observe.Stream's.
func (Deaf) Head(*observe.Request) {}

// Status is observe.Stream's.
func (Deaf) Status(int) {}

// GRPCStatus is observe.Stream's.
func (Deaf) GRPCStatus(int) {}

// HalfClosed is observe.Stream's.
func (Deaf) HalfClosed(observe.Direction) {}

// SetKind is observe.Stream's.
func (Deaf) SetKind(observe.Kind) {}

// State is observe.Stream's.
func (Deaf) State(observe.Waiting, observe.Stage) {}

// Bytes is observe.Stream's.
func (Deaf) Bytes(observe.Direction, int) {}

// Message is observe.Stream's.
func (Deaf) Message(observe.Direction) {}

// Done is observe.Stream's.
func (Deaf) Done(observe.Outcome) {}
