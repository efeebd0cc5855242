package tracker

// CanOccur says which ends there are: the (fate, by) pairs that a record can end with, so that exporters can have just
// these at zero from the start. An end outside of them is a bug of the caller's, see Config.Strict.
//
// The pairs are the same for both kinds of record and for every kind of traffic, 15 in all, but for one. A stream that ends with its
// connection takes the connection's end over, so what can occur to the one can occur to the other.
func CanOccur(what What, k Kind, f Fate, by Party) bool {
	if what >= numWhats || k >= numKinds {
		return false
	}
	switch f {
	case Completed:
		return by == ByClient || by == ByApp
	case Aborted: // by lastcall: a TLS handshake that we gave up, when the kind is not known yet
		return by == ByClient || by == ByApp || by == ByLastcall && what == WhatConnection && k == KindTCP
	case Drained: // by lastcall: an idle connection that we closed after its farewell
		return by == ByClient || by == ByApp || by == ByLastcall
	case Ended, Cut, Rejected, TimedOut, Failed:
		return by == ByLastcall
	case Unreachable:
		return by == ByApp
	case Kicked:
		return by == ByOperator
	case Lost: // who would have ended it died unseen
		return by == ByUnknown
	case FateOpen, numFates:
		return false
	}
	return false
}
