// Package opaque observes a connection whose bytes are not read: it is one stream of kind TCP that begins with its first
// byte and has no end of its own; whoever owns the connection ends it.
package opaque

import "github.com/lastcall-proxy/lastcall/proxy/observe"

// Observer counts bytes.
type Observer struct {
	sink   observe.Sink
	stream observe.Stream
	reject bool
	closed bool // rejected: everything is swallowed
	edit   [1]observe.Edit
}

// New makes an observer.
func New(sink observe.Sink) *Observer { return &Observer{sink: sink} }

// Data is observe.Observer's.
func (o *Observer) Data(dir observe.Direction, p []byte) []observe.Edit {
	if o.closed {
		return o.drop(dir, len(p))
	}
	if o.stream == nil {
		o.stream = o.sink.Begin(observe.TCP)
		o.sink.Protocol(observe.TCP)
		o.stream.State(observe.WaitingEither, observe.StageTunnel)
		if o.reject {
			o.closed = true
			o.stream.Done(observe.Outcome{Verdict: observe.Rejected})
			o.sink.CloseAfter()
			return o.drop(dir, len(p))
		}
	}
	o.stream.Bytes(dir, len(p))
	return nil
}

func (o *Observer) drop(dir observe.Direction, n int) []observe.Edit {
	o.edit[0] = observe.Edit{Dir: dir, Drop: n}
	return o.edit[:]
}

// EOF is observe.Observer's.
func (o *Observer) EOF(observe.Direction) []observe.Edit { return nil }

// Tell is observe.Observer's: opaque bytes have no farewell, and no place at which one could be put.
func (o *Observer) Tell(order observe.Order) []observe.Edit {
	switch order {
	case observe.OrderReject:
		o.reject = o.stream == nil
	case observe.OrderServe:
		o.reject = false
	case observe.OrderFarewell, observe.OrderEnd:
	}
	return nil
}

// Idle is observe.Observer's.
func (o *Observer) Idle() bool { return o.stream == nil || o.closed }
