// Package fatelog writes what became of each connection and stream: a JSON line each, the record's fields flat beside
// level, logger ("fate") and msg; and at the end the report, to a file and to the termination message.
//
// The data path never waits for a log reader: lines go through a bounded queue to one writer, and what finds it full is
// counted and told in the next line that gets through.
package fatelog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap/zapcore"

	"github.com/lastcall-proxy/lastcall/tracker"
)

// DefaultQueue is how many lines may wait for the writer.
const DefaultQueue = 64 << 10

// Config sets up a Log.
type Config struct {
	Out     zapcore.WriteSyncer
	Queue   int  // default DefaultQueue
	Console bool // lines in the form of zap's console encoder instead of JSON
}

type line struct {
	what tracker.What
	rec  *tracker.Record
}

// Log is a fate log. OnEnd feeds it, Close ends it.
type Log struct {
	out     zapcore.WriteSyncer
	console bool
	lines   chan line
	dropped atomic.Uint64
	done    chan struct{}
	closing chan struct{}
	once    sync.Once
}

// New starts a log's writer.
func New(cfg Config) *Log {
	if cfg.Queue <= 0 {
		cfg.Queue = DefaultQueue
	}
	l := &Log{out: cfg.Out, console: cfg.Console, lines: make(chan line, cfg.Queue), done: make(chan struct{}), closing: make(chan struct{})}
	go l.write()
	return l
}

// OnEnd takes a record (tracker.Config.OnEnd). It never blocks. After Close it only counts.
func (l *Log) OnEnd(what tracker.What, rec *tracker.Record) {
	select {
	case <-l.closing:
		l.dropped.Add(1)
		return
	default:
	}
	select {
	case l.lines <- line{what, rec}:
	default:
		l.dropped.Add(1)
	}
}

// Dropped is how many lines are not in the log: they found the queue full or closed, or could not be written.
func (l *Log) Dropped() uint64 { return l.dropped.Load() }

// Close writes what is queued, until ctx ends.
func (l *Log) Close(ctx context.Context) error {
	l.once.Do(func() { close(l.closing) })
	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("fatelog: %d lines unwritten: %w", len(l.lines), ctx.Err())
	}
}

// gather is how long the writer lets lines gather after it was woken: a wake-up and a write for each would cost more than
// the line.
const gather = 10 * time.Millisecond

func (l *Log) write() {
	defer close(l.done)
	w := writer{log: l}
	t := time.NewTimer(gather)
	defer t.Stop()
	for {
		select {
		case e := <-l.lines:
			w.line(e)
			t.Reset(gather)
			select {
			case <-t.C:
			case <-l.closing:
			}
			w.drain()
		case <-l.closing:
			w.drain()
			_ = l.out.Sync()
			return
		}
	}
}

// writer is what the one goroutine that writes keeps between lines.
type writer struct {
	log     *Log
	buf     []byte
	lines   int    // in buf
	telling uint64 // the losses that a line in buf tells
	told    uint64 // the losses that lines which got through have told
}

// maxWrite bounds what is gathered for one write.
const maxWrite = 32 << 10

// drain writes all that is queued.
func (w *writer) drain() {
	for {
		select {
		case e := <-w.log.lines:
			w.line(e)
		default:
			w.flush()
			return
		}
	}
}

func (w *writer) flush() {
	if w.lines == 0 {
		return
	}
	if _, err := w.log.out.Write(w.buf); err != nil {
		w.log.dropped.Add(uint64(w.lines)) // a log that can't be written has nowhere else to say so
		w.telling = w.told
	} else {
		w.told = w.telling // only lines that got through have told it
	}
	w.buf, w.lines = w.buf[:0], 0
}

func (w *writer) line(e line) {
	before, between, after := `{"level":"info","ts":"`, `","logger":"fate","msg":"`, ` ended",`
	if w.log.console {
		before, between, after = "", "\tinfo\tfate\t", " ended\t{"
	}
	buf := append(w.buf, before...)
	buf = time.Now().UTC().AppendFormat(buf, "2006-01-02T15:04:05.000000Z")
	buf = append(buf, between...)
	buf = append(buf, e.what.String()...)
	buf = append(buf, after...)
	lost := w.log.dropped.Load()
	if lost != w.telling {
		buf = append(buf, `"dropped_before":`...)
		buf = strconv.AppendUint(buf, lost-w.telling, 10)
		buf = append(buf, ',')
	}
	start := len(buf)
	buf = e.rec.AppendJSON(buf)
	buf = append(buf[:start], buf[start+1:]...) // the record's own brace
	buf = append(buf, '\n')
	w.buf, w.telling = buf, lost
	w.lines++
	if len(w.buf) >= maxWrite {
		w.flush()
	}
}

// WriteReport puts the report into a file, whole or not at all.
func WriteReport(path string, rep tracker.Report) (err error) {
	b, err := json.MarshalIndent(rep, "", " ")
	if err != nil {
		return fmt.Errorf("fatelog: report: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".lastcall-report-*")
	if err != nil {
		return fmt.Errorf("fatelog: report: %w", err)
	}
	_, werr := f.Write(append(b, '\n'))
	if err := errors.Join(werr, f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return errors.Join(fmt.Errorf("fatelog: report: %w", err), os.Remove(f.Name()))
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return errors.Join(fmt.Errorf("fatelog: report: %w", err), os.Remove(f.Name()))
	}
	return nil
}

// WriteTermination puts the report's short form where the kubelet reads it. The file is a mount: it is written in place.
func WriteTermination(path string, rep tracker.Report) error {
	if err := os.WriteFile(path, rep.Short(tracker.MaxShort), 0o644); err != nil {
		return fmt.Errorf("fatelog: termination message: %w", err)
	}
	return nil
}
