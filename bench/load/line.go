package load

import (
	"bufio"
	"errors"
)

// errLongLine is a line that has no end within what a message may have.
var errLongLine = errors.New("a line longer than any message")

// readLine reads up to and with a newline, maxSize bytes at most: a server that never ends its line does not fill our memory.
func readLine(r *bufio.Reader) (line []byte, err error) {
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case !errors.Is(err, bufio.ErrBufferFull):
			return line, err
		case len(line) > maxSize+maxNumber:
			return line, errLongLine
		}
	}
}

// maxNumber is what a line has beside a message of the greatest size.
const maxNumber = 32
