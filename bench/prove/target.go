package prove

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Target is what a proof terminates: a process here, later a pod or a rollout.
type Target interface {
	// Ready fails when there is nothing to terminate.
	Ready(ctx context.Context) error
	// Terminate pulls the trigger and returns at once.
	Terminate(ctx context.Context) error
	// Gone is closed when what was terminated is gone, or never.
	Gone() <-chan struct{}
	// Stop ends what the target has started and is still there.
	Stop()
	// Repeats says whether it can be terminated again.
	Repeats() bool
	String() string
}

// NewTarget makes the one that the flags ask for; nil: none.
func NewTarget(pid int, signal, command string, none bool) (Target, error) {
	n := 0
	for _, set := range []bool{pid != 0, command != "", none} {
		if set {
			n++
		}
	}
	sig, err := signalOf(signal)
	switch {
	case err != nil:
		return nil, err
	case n > 1:
		return nil, errors.New("--signal-pid, --exec, --none: only one of them")
	case signal != "" && pid == 0:
		return nil, errors.New("--signal: needs --signal-pid")
	case pid < 0:
		return nil, errors.New("--signal-pid: want a process id")
	case pid > 0:
		return &process{pid: pid, sig: sig, gone: make(chan struct{})}, nil
	case command != "":
		return &script{command: command}, nil
	case none:
		return nobody{}, nil
	}
	return nil, nil
}

// process is signalled.
type process struct {
	pid  int
	sig  syscall.Signal
	gone chan struct{}
}

// alive looks whether the process runs: one that nobody has waited for is gone, too.
func alive(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return syscall.Kill(pid, 0) == nil && !errors.Is(err, os.ErrNotExist)
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

func (p *process) Ready(context.Context) error {
	if !alive(p.pid) {
		return fmt.Errorf("--signal-pid %d: no such process", p.pid)
	}
	return nil
}

func (p *process) Terminate(ctx context.Context) error {
	if err := syscall.Kill(p.pid, p.sig); err != nil {
		return fmt.Errorf("--signal-pid %d: %w", p.pid, err)
	}
	go func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for alive(p.pid) {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
		close(p.gone)
	}()
	return nil
}

func (p *process) Gone() <-chan struct{} { return p.gone }
func (*process) Stop()                   {} // not ours
func (*process) Repeats() bool           { return false }
func (p *process) String() string {
	return fmt.Sprintf("%s to process %d", unix.SignalName(p.sig), p.pid)
}

// script runs a command. As long as it runs, it and what it started form a process group that ends with us; what a command
// that has come to its end left behind (a server that it restarted) was meant to stay.
type script struct {
	command string
	cmd     *exec.Cmd
	done    chan struct{}
	err     error
}

func (s *script) Ready(context.Context) error { return nil }

func (s *script) Terminate(context.Context) error {
	s.cmd = exec.Command("/bin/sh", "-c", s.command)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	s.cmd.Stdout, s.cmd.Stderr = os.Stderr, os.Stderr
	if err := s.cmd.Start(); err != nil {
		return fmt.Errorf("--exec: %w", err)
	}
	s.done = make(chan struct{})
	go func() { s.err = s.cmd.Wait(); close(s.done) }()
	return nil
}

// Gone: a command's end says nothing of what it has terminated.
func (s *script) Gone() <-chan struct{} { return nil }

// Err is how the command ended, when it has.
func (s *script) Err() error {
	select {
	case <-s.done:
		return s.err
	default:
		return nil
	}
}

func (s *script) Stop() {
	if s.cmd == nil || s.done == nil {
		return
	}
	if !s.Running() {
		return
	}
	group := -s.cmd.Process.Pid
	_ = syscall.Kill(group, syscall.SIGTERM)
	for began := time.Now(); time.Since(began) < time.Second && syscall.Kill(group, 0) == nil; {
		time.Sleep(5 * time.Millisecond)
	}
	_ = syscall.Kill(group, syscall.SIGKILL) // whoever of them would not go, the shell or not
	<-s.done
}

// Running says that the command has not come to its end.
func (s *script) Running() bool {
	select {
	case <-s.done:
		return false
	default:
		return true
	}
}

func (*script) Repeats() bool    { return true }
func (s *script) String() string { return "exec " + s.command }

// nobody leaves the trigger to the user.
type nobody struct{}

func (nobody) Ready(context.Context) error     { return nil }
func (nobody) Terminate(context.Context) error { return nil }
func (nobody) Gone() <-chan struct{}           { return nil }
func (nobody) Stop()                           {}
func (nobody) Repeats() bool                   { return true }
func (nobody) String() string                  { return "none: by hand" }
