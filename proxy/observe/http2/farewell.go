package http2

import (
	"slices"

	"github.com/lastcall-proxy/lastcall/proxy/observe"
)

// Tell is observe.Observer's.
func (o *Observer) Tell(order observe.Order) []observe.Edit {
	if o.lost {
		return nil
	}
	o.edits, o.at = o.edits[:0], 0
	ready := o.flows[observe.FromApp].settings
	switch order {
	case observe.OrderFarewell:
		o.careful, o.farewell = true, true
		if ready { // a connection that has only just come is told after its first answer
			o.sayFarewell()
		}
	case observe.OrderReject:
		// A connection that has only just come may be a probe's: it is told with its first refusal. Asked again, it is over.
		o.careful, o.wantFinal = true, o.wantFinal || ready || o.reject
		o.reject = true
	case observe.OrderServe:
		o.farewell, o.reject, o.ending, o.wantFinal = false, false, false, false
	case observe.OrderEnd:
		o.careful, o.ending, o.wantFinal = true, true, true
		for _, id := range o.ids() {
			o.endStream(o.streams[id])
		}
	}
	o.after()
	if len(o.edits) == 0 {
		return nil
	}
	return o.edits
}

// sayFarewell says the first GOAWAY (RFC 9113 section 6.8): nothing is refused yet, and the answer to the PING behind it
// tells that the client has read it.
func (o *Observer) sayFarewell() {
	if o.announced || o.final {
		return
	}
	o.announced = true
	if o.wire <= maxID {
		return // the app has said it
	}
	o.wire = maxID
	for o.ping = o.opt.Random(); slices.Contains(o.appPings[:o.appPingCount], o.ping); {
		o.ping++
	}
	o.pings = 1
	o.trips[observe.FromClient].ping(o.now())
	o.put(observe.FromApp, appendPing(appendGoAway(nil, maxID, codeNoError), o.ping))
	o.sink.Farewell(true)
}

// sayFinal says the last GOAWAY: what is above the last stream that was forwarded is refused from then on, in every phase.
func (o *Observer) sayFinal() {
	if o.final {
		return
	}
	if f := &o.flows[observe.FromClient]; f.mid && (f.got < headLen || f.block) {
		o.wantFinal = true // its id is not known, and its first bytes are out
		return
	}
	o.final, o.limit = true, o.passed
	if o.passed >= o.wire {
		o.limit = o.wire // the app has said it, and not higher
		return
	}
	o.wire = o.passed
	o.put(observe.FromApp, appendGoAway(nil, o.passed, codeNoError))
	o.sink.Farewell(true)
}

// after looks, behind every frame and order, whether the next word can be said.
func (o *Observer) after() {
	if !o.careful || o.lost || o.closing {
		return
	}
	if o.endLater && o.ending {
		o.endLater = false
		for _, id := range o.ids() {
			o.endStream(o.streams[id])
		}
	}
	quiet := o.open == o.watches
	if o.farewell && !o.announced && o.passed > 0 && quiet {
		o.sayFarewell()
	}
	if o.wantFinal || o.farewell && o.answered && quiet {
		o.sayFinal()
	}
	if o.final && quiet && o.watches > 0 {
		o.endWatches()
	}
	if o.final && o.open == 0 && len(o.flows[0].pending) == 0 && len(o.flows[1].pending) == 0 {
		o.closing = true
		o.sink.CloseAfter()
	}
}

// endWatches ends the health watches that are all that is left, as far as that can be done now: clients that balance load
// keep one open on each connection for as long as they live (gRFC A17), and would hold every drain to its deadline.
func (o *Observer) endWatches() {
	for _, id := range o.ids() {
		if s := o.streams[id]; s.watch {
			o.endStream(s)
		}
	}
}

// refuse turns a late stream away: its head is complete and was held back.
func (o *Observer) refuse(s *stream) {
	o.swallow(observe.FromClient)
	o.startRewriting(observe.FromClient)
	o.put(observe.FromApp, appendReset(nil, s.id, codeRefusedStream))
	o.done(s, observe.Outcome{Verdict: observe.Rejected, Reset: codeNames[codeRefusedStream]})
	o.forget(s)
	if !o.final {
		o.sayFinal()
	}
}
