// Package sse finds the boundaries of events in a text/event-stream body (HTML standard, section 9.2.6): an event ends with
// a blank line, and lines end with LF, CR or CRLF.
package sse

// Scanner walks a body. Its zero value stands at the start, which is a boundary.
type Scanner struct {
	begun   bool // bytes of the event that is under way have come
	inLine  bool
	cr      bool // the last byte was a CR
	crlf    bool // the body ends its lines with CRLF
	pending bool // a blank line ended with CR, its LF is to come
}

// Write takes the next bytes and tells how many events ended in them.
func (s *Scanner) Write(p []byte) (events int) {
	for _, c := range p {
		switch {
		case c == '\n' && s.cr:
			s.cr, s.crlf, s.pending = false, true, false
		case c == '\n' || c == '\r':
			s.cr = c == '\r'
			if !s.inLine && s.begun {
				events++
				s.begun = false
				s.pending = s.cr && s.crlf
			}
			s.inLine = false
		default:
			s.cr, s.inLine, s.begun, s.pending = false, true, true, false
		}
	}
	return events
}

// AtBoundary tells whether the body could end here without losing a part of an event.
func (s *Scanner) AtBoundary() bool { return !s.begun && !s.pending }
