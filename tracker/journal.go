package tracker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"unsafe"
)

// openTable counts what is open, by what, direction and kind.
type openTable [numWhats][numDirections][numKinds]int64

// Journal is a small file that holds, while the process runs, how much of what is open. The file is mapped into memory: it
// survives a crash or a SIGKILL without a system call per connection. The next process that opens it finds what was lost.
//
// It survives the process, not the machine: nothing is synced to disk.
type Journal struct {
	file *os.File
	mem  []byte
}

// Left is what a process left open that had no time to tell.
type Left struct {
	Counts [numWhats][numDirections][numKinds]uint64
}

// Sum is how many connections or streams were left open.
func (l *Left) Sum(w What) (n uint64) {
	for _, kinds := range l.Counts[w] {
		for _, v := range kinds {
			n += v
		}
	}
	return n
}

// ByKind is the same by kind, without those that are zero.
func (l *Left) ByKind(w What) map[string]uint64 {
	m := make(map[string]uint64)
	for _, kinds := range l.Counts[w] {
		for k, v := range kinds {
			if v > 0 {
				m[Kind(k).String()] += v
			}
		}
	}
	return m
}

// The file: a header of 64 bytes (magic, layout, shards), then one openTable a shard, padded so that shards share no cache
// line. All numbers are little-endian, as they are in the memory of the machines this runs on.
const (
	journalMagic  = "lastcall"
	journalLayout = 1
	journalHeader = 64
	maxShards     = 64
)

const tableSize = (int(unsafe.Sizeof(openTable{})) + 63) &^ 63

// OpenJournal opens or makes a journal for a number of shards and tells what an earlier process left in it. A file of
// another layout, or one that is no journal, is an error and stays as it is.
func OpenJournal(path string, shards int) (j *Journal, left Left, err error) {
	if shards < 1 || shards > maxShards {
		return nil, left, fmt.Errorf("tracker: journal for %d shards: want 1 to %d", shards, maxShards)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, left, fmt.Errorf("tracker: journal: %w", err)
	}
	fail := func(err error) (*Journal, Left, error) {
		_ = f.Close()
		return nil, Left{}, fmt.Errorf("tracker: journal %s: %w", path, err)
	}
	old := make([]byte, journalHeader+maxShards*tableSize+1)
	n, err := f.ReadAt(old, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return fail(err)
	}
	if n > 0 {
		if left, err = readJournal(old[:n]); err != nil {
			return fail(err)
		}
	}
	size := journalHeader + shards*tableSize
	if err := f.Truncate(0); err != nil { // old counts must not be taken for this process's
		return fail(err)
	}
	if err := f.Truncate(int64(size)); err != nil {
		return fail(err)
	}
	mem, err := mapFile(f, size)
	if err != nil {
		return fail(err)
	}
	copy(mem, journalMagic)
	binary.LittleEndian.PutUint32(mem[8:], journalLayout)
	binary.LittleEndian.PutUint32(mem[12:], uint32(shards))
	return &Journal{file: f, mem: mem}, left, nil
}

func readJournal(b []byte) (left Left, err error) {
	if len(b) < journalHeader || string(b[:8]) != journalMagic {
		return left, errors.New("not a journal")
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != journalLayout {
		return left, fmt.Errorf("layout %d, want %d", v, journalLayout)
	}
	shards := int(binary.LittleEndian.Uint32(b[12:]))
	if shards > maxShards || len(b) != journalHeader+shards*tableSize {
		return left, fmt.Errorf("%d bytes for %d shards", len(b), shards)
	}
	var sum openTable
	for i := range shards {
		t := b[journalHeader+i*tableSize:]
		for w := range sum {
			for d := range sum[w] {
				for k := range sum[w][d] {
					sum[w][d][k] += int64(binary.LittleEndian.Uint64(t))
					t = t[8:]
				}
			}
		}
	}
	for w := range sum {
		for d := range sum[w] {
			for k, v := range sum[w][d] {
				if v > 0 { // a process killed between two stores may leave one off by one below zero
					left.Counts[w][d][k] = uint64(v)
				}
			}
		}
	}
	return left, nil
}

// table is a shard's part; nil without a journal.
func (j *Journal) table(shard int) *openTable {
	if j == nil {
		return nil
	}
	return (*openTable)(unsafe.Pointer(&j.mem[journalHeader+shard*tableSize]))
}

// Close ends the journal. Call it when no shard is used any more: what is open then is found as lost later.
func (j *Journal) Close() error {
	mem := j.mem
	j.mem = nil
	if err := unmap(mem); err != nil {
		return fmt.Errorf("tracker: journal: %w", err)
	}
	return j.file.Close()
}

// bookLost gives what an earlier process left its fate.
func (s *Shard) bookLost(left *Left) {
	for w := range left.Counts {
		for d := range left.Counts[w] {
			for k, n := range left.Counts[w][d] {
				s.books.Opened[w][d][k] += n
				s.books.Inherited[w][d][k] += n
				s.books.Fates[w][d][k][Lost][ByUnknown] += n
			}
		}
	}
}
