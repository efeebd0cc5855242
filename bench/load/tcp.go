package load

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// tcpEcho sends lines with a number and expects them back.
type tcpEcho struct {
	c    net.Conn
	r    *bufio.Reader
	spec Spec
	mid  bool // a part of a line had come
}

func dialTCP(ctx context.Context, s Spec, to endpoint) (session, error) {
	c, err := dial(ctx, &s, to)
	if err != nil {
		return nil, err
	}
	return &tcpEcho{c: c, r: bufio.NewReaderSize(c, 4096), spec: s}, nil
}

func (t *tcpEcho) send(n uint64) error {
	line := strconv.FormatUint(n, 10)
	if pad := t.spec.Size - len(line) - 2; pad > 0 {
		line += " " + strings.Repeat("x", pad)
	}
	_, err := io.WriteString(t.c, line+"\n")
	return err
}

func (t *tcpEcho) recv() (uint64, error) {
	line, err := readLine(t.r)
	if err != nil {
		t.mid = len(line) > 0
		return 0, err
	}
	number, _, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return 0, errNumber
	}
	return n, nil
}

func (*tcpEcho) listens() bool   { return false }
func (*tcpEcho) collects() bool  { return false }
func (t *tcpEcho) local() string { return t.c.LocalAddr().String() }

// ending: raw TCP has no goodbye but FIN. Where an answer is due it is a loss.
func (t *tcpEcho) ending(err error, owed bool) (Outcome, string) {
	if errors.Is(err, io.EOF) && !owed && !t.mid {
		return Told, "FIN"
	}
	return causeOf(err, t.mid)
}

func (t *tcpEcho) close() {
	if h, ok := t.c.(interface{ CloseWrite() error }); ok {
		_ = h.CloseWrite()
		_ = t.c.SetReadDeadline(time.Now().Add(time.Second)) // a server that leaves its half open does not hold us
		return
	}
	_ = t.c.Close()
}
func (t *tcpEcho) abort() { _ = t.c.Close() }
