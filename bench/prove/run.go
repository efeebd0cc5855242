package prove

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lastcall-proxy/lastcall/bench/load"
	"github.com/lastcall-proxy/lastcall/bench/proof"
)

// Run carries a plan out. What it returns is always a document: an interrupted proof is partial, one without a baseline has
// no verdict. progress gets a line per step.
func Run(ctx context.Context, p *Plan, progress io.Writer) *proof.Proof {
	out := &proof.Proof{Schema: proof.Schema, Trigger: p.Target.String(), Runs: []proof.Run{}, Thresholds: []proof.Threshold{}}
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(progress, format+"\n", args...) }
	for i := range p.Repeat {
		if p.Repeat > 1 {
			say("run %d of %d", i+1, p.Repeat)
		}
		r := &run{plan: p, say: say}
		err := r.do(ctx)
		if out.At == "" && !r.zero.IsZero() {
			out.At = r.zero.UTC().Format(time.RFC3339Nano)
		}
		if r.result != nil {
			out.Runs = append(out.Runs, *r.result)
		}
		if err != nil {
			out.Verdict, out.Reason = proof.NoVerdict, err.Error()
			out.Partial = ctx.Err() != nil
			break
		}
	}
	out.Cost = cost()
	judge(out, &p.Limits)
	return out
}

// run is one trigger.
type run struct {
	plan     *Plan
	say      func(string, ...any)
	start    time.Time
	zero     time.Time // the trigger
	drivers  []*load.Driver
	sidecars []*watched
	result   *proof.Run
}

var errInterrupted = errors.New("interrupted")

func (r *run) do(ctx context.Context) error {
	p := r.plan
	if err := p.Target.Ready(ctx); err != nil {
		return err
	}
	for i := range p.Loads {
		if err := listens(ctx, &p.Loads[i]); err != nil {
			return err
		}
	}
	for _, addr := range p.Sidecars {
		s, err := watchSidecar(ctx, addr, p.TokenFile)
		if err != nil {
			return err
		}
		defer s.stop()
		r.sidecars = append(r.sidecars, s)
	}
	defer p.Target.Stop()

	r.start = time.Now()
	r.zero = r.start.Add(p.Warmup + p.Baseline) // until it is known better
	live, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer func() { stop(); wg.Wait() }()
	for _, spec := range p.Loads {
		d, err := load.New(spec, p.Reconnect, r.start)
		if err != nil {
			return err
		}
		r.drivers = append(r.drivers, d)
		wg.Go(func() { d.Run(live) })
	}
	r.say("warm-up %v, baseline %v", p.Warmup, p.Baseline)
	if !sleep(ctx, p.Warmup) {
		return r.broken(ctx, stop, &wg)
	}
	before := r.counts()
	if !sleep(ctx, p.Baseline) {
		return r.broken(ctx, stop, &wg)
	}
	base := r.counts()
	baseline := proof.Baseline{Seconds: p.Baseline.Seconds(), Attempted: base.attempted - before.attempted, Failed: base.failed}
	if base.failed > 0 {
		r.zero = time.Now()
		r.finish(ctx, stop, &wg, baseline)
		return fmt.Errorf("the baseline errs: %d failures before anything was terminated, first: %s", base.failed, r.first())
	}
	if base.attempted == 0 || base.idle != "" {
		r.zero = time.Now()
		r.finish(ctx, stop, &wg, baseline)
		return fmt.Errorf("the baseline is empty: nothing came of %s within %v; a longer --baseline waits for longer", base.idle, p.Warmup+p.Baseline)
	}

	r.zero = time.Now()
	r.say("trigger: %s", p.Target)
	if _, byHand := p.Target.(nobody); byHand {
		r.say("do it now: %v are watched from here", p.For)
	}
	if err := p.Target.Terminate(ctx); err != nil {
		r.finish(ctx, stop, &wg, baseline)
		return err
	}
	r.observe(ctx)
	r.finish(ctx, stop, &wg, baseline)
	if ctx.Err() != nil { // also when only the last answers were waited for: what was broken off is no part of the account
		return errInterrupted
	}
	if s, ok := p.Target.(*script); ok {
		if s.Running() {
			r.result.Unfinished = "command"
			return nil
		}
		if err := s.Err(); err != nil {
			return fmt.Errorf("--exec: the command failed: %w", err)
		}
	}
	return nil
}

// observe waits for the time after the trigger, and for the target's end within it.
func (r *run) observe(ctx context.Context) {
	r.result = &proof.Run{}
	end := time.NewTimer(r.plan.For)
	defer end.Stop()
	gone := r.plan.Target.Gone()
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	told := 0
	for {
		select {
		case <-look.C:
			told = r.tellPhases(told)
		case <-gone:
			at := seconds(time.Since(r.zero))
			r.result.Exited = &at
			r.say("the target is gone at %+.1f s", at)
			gone = nil
		case <-end.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// tellPhases says which phases the first sidecar has come to since the last look.
func (r *run) tellPhases(told int) int {
	if len(r.sidecars) == 0 {
		return told
	}
	s := r.sidecars[0]
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ph := range s.phases[told:] {
		r.say("%+6.1f s %s", seconds(ph.at.Sub(r.zero)), ph.name)
	}
	return len(s.phases)
}

func (r *run) broken(ctx context.Context, stop func(), wg *sync.WaitGroup) error {
	r.zero = time.Now()
	r.finish(ctx, stop, wg, proof.Baseline{Seconds: 0})
	if ctx.Err() != nil {
		return errInterrupted
	}
	return nil
}

// finish stops the loads, waits for the last fates, and joins.
func (r *run) finish(ctx context.Context, stop func(), wg *sync.WaitGroup, b proof.Baseline) {
	stopped := time.Now()
	stop()
	r.await(ctx, wg)
	r.settle(ctx)
	for _, s := range r.sidecars {
		s.listOpen(ctx)
		s.stop()
	}
	res := r.result
	if res == nil {
		res = &proof.Run{}
	}
	res.Baseline, res.End = b, seconds(stopped.Sub(r.zero))
	for i, path := range r.plan.ReportFiles {
		if i >= len(r.sidecars) {
			r.sidecars = append(r.sidecars, &watched{addr: path, fates: map[string]uint64{}})
		}
		if err := r.sidecars[i].readReport(path, r.zero); err != nil {
			r.say("%v", err)
			r.sidecars[i].problem = err.Error()
		}
	}
	res.Running = r.plan.Target.Gone() != nil && res.Exited == nil
	res.Unfinished = unfinished(r.sidecars, stopped)
	res.Phases = phasesOf(r.sidecars, seconds(r.start.Sub(r.zero)), res.End, r.zero, res.Exited)
	j := newJoiner(r.sidecars)
	res.Failures = []proof.Failure{}
	for _, d := range r.drivers {
		a := d.Account()
		res.Loads = append(res.Loads, loadOf(&a, r.start, r.zero))
		res.Failures = append(res.Failures, failures(&a, j, r.zero, res.Phases)...)
		res.Omitted += a.Omitted
	}
	slices.SortStableFunc(res.Failures, func(a, b proof.Failure) int {
		switch {
		case a.At < b.At:
			return -1
		case a.At > b.At:
			return 1
		}
		return 0
	})
	for i := range res.Failures {
		if res.Failures[i].Attributed == unexplained {
			res.Unexplained++
		}
	}
	res.Sidecars = []proof.Sidecar{}
	for _, s := range r.sidecars {
		res.Sidecars = append(res.Sidecars, s.told(r.zero))
	}
	res.Advice = res.Advise()
	r.result = res
}

// graceTime is how long what is under way has to come to its end when it is interrupted.
const graceTime = time.Second

// await waits for the loads' ends: for as long as their requests' time limits let them take, unless it is interrupted.
func (r *run) await(ctx context.Context, wg *sync.WaitGroup) {
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
		return
	case <-ctx.Done():
	}
	select {
	case <-done:
	case <-time.After(graceTime):
		for _, d := range r.drivers {
			d.Abort()
		}
		<-done
	}
}

// settle waits until every failure has its fate, or for the settle time.
func (r *run) settle(ctx context.Context) {
	if len(r.sidecars) == 0 {
		return
	}
	for deadline := time.Now().Add(r.plan.Settle); time.Now().Before(deadline) && sleep(ctx, 50*time.Millisecond); {
		j, missing := newJoiner(r.sidecars), false
		for _, d := range r.drivers {
			a := d.Account()
			for i := range a.Entries {
				if e := &a.Entries[i]; !e.Outcome.Good() && e.Outcome != load.Refused && j.find(e) == nil {
					missing = true
				}
			}
		}
		if !missing {
			return
		}
	}
}

type counted struct {
	attempted, failed uint64
	idle              string // loads of which nothing came
}

func (r *run) counts() (c counted) {
	for _, d := range r.drivers {
		a := d.Account()
		c.attempted += a.Attempted
		c.failed += a.Failed + a.Faults + uint64(a.Gaps)
		if a.Succeeded == 0 && a.Sessions == 0 {
			c.idle = strings.TrimPrefix(c.idle+", "+string(a.Spec.Kind)+" "+a.Spec.Target, ", ")
		}
	}
	return c
}

// first names the first failure.
func (r *run) first() string {
	if r.result == nil || len(r.result.Failures) == 0 {
		return "a message that is missing"
	}
	f := r.result.Failures[0]
	return fmt.Sprintf("%s %s (%s)", f.Kind, f.Outcome, f.Wire)
}

// listens makes sure that there is somebody before anything is driven.
func listens(ctx context.Context, s *load.Spec) error {
	addr, err := s.Addr()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("--load %s=%s: nobody there: %w", s.Kind, s.Target, err)
	}
	return c.Close()
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// cost is what this process has taken.
func cost() proof.Cost {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return proof.Cost{}
	}
	cpu := time.Duration(u.Utime.Nano() + u.Stime.Nano())
	return proof.Cost{CPU: seconds(cpu), Memory: float64(u.Maxrss) / 1024} // KiB on Linux
}
