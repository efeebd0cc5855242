package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/lastcall-proxy/lastcall/bench/peers"
)

// account is processor time at one moment: the whole machine's, and what the benchmark's own processes used of it.
type account struct {
	at         time.Time
	busy, ours time.Duration
}

// take reads the account. Peers that start or stop between two readings would falsify the difference.
func take(all ...*peers.Peer) (account, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return account{}, err
	}
	a := account{at: time.Now()}
	if a.busy, err = busy(string(b)); err != nil {
		return account{}, err
	}
	var self syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &self); err != nil {
		return account{}, err
	}
	a.ours = time.Duration(self.Utime.Nano() + self.Stime.Nano())
	for _, p := range all {
		a.ours += p.CPU()
	}
	return a, nil
}

// busy sums the first line of /proc/stat without idle and waiting: user, nice, system, idle, iowait, irq, softirq, steal.
func busy(stat string) (time.Duration, error) {
	line, _, _ := strings.Cut(stat, "\n")
	f := strings.Fields(line)
	if len(f) < 9 || f[0] != "cpu" {
		return 0, fmt.Errorf("/proc/stat begins %q", line)
	}
	const tick = 10 * time.Millisecond // USER_HZ is 100 on everything Go runs on
	var sum time.Duration
	for i, v := range f[1:9] {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/stat: %w", err)
		}
		if i != 3 && i != 4 {
			sum += time.Duration(n) * tick
		}
	}
	return sum, nil
}

// elsewhere is the share of the machine, in percent, that others used since before: what makes figures unsteady.
func (a account) elsewhere(before account) float64 {
	whole := a.at.Sub(before.at) * time.Duration(runtime.NumCPU())
	return 100 * max(0, (a.busy-before.busy)-(a.ours-before.ours)).Seconds() / whole.Seconds()
}
