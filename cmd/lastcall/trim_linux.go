package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// forgetStartup lets go of the program's own pages: most of what start-up has touched (parsing flags, registering metrics
// and message types) is never run again, and counts as resident for as long as the process lives. The pages belong to the
// file: what is used comes back from the page cache with a minor fault. A mapping with pages that were written (what the
// linker left for the loader to relocate) is left alone: those would come back unwritten.
func forgetStartup() {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	var from, to uintptr
	for sc := bufio.NewScanner(f); sc.Scan(); {
		line := sc.Text()
		var a, b uintptr
		var mode string
		if n, _ := fmt.Sscanf(line, "%x-%x %s", &a, &b, &mode); n == 3 {
			from, to = a, b
			if mode[1] == 'w' || !strings.HasSuffix(line, exe) {
				from, to = 0, 0
			}
			continue
		}
		var written int
		if n, _ := fmt.Sscanf(line, "Anonymous: %d kB", &written); n == 1 && written == 0 && to > from {
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED) // no harm if refused
		}
	}
}
