// Command lastcallctl is the operator's tool: it proves that a rollout was clean, shows what a proof has
// said, and rehearses whether clients come back.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// Exit statuses.
const (
	exitNotProven = 1
	exitUsage     = 2
	exitNoVerdict = 3
)

// status is an error with an exit status of its own; others are usage errors.
type status struct {
	err  error
	code int
}

func (s status) Error() string { return s.err.Error() }
func (s status) Unwrap() error { return s.err }

// patience is how long after the first signal a second one means that the end is wanted at once. timeout(1) sends each twice.
const patience = time.Second

func main() {
	on := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup
		on = append(on, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), on...)
	context.AfterFunc(ctx, func() { time.AfterFunc(patience, stop) })
	// A reader that goes (head, less) makes writes fail; it does not end us, files are still to be written. Ignoring the signal
	// would be handed down to commands.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := &cobra.Command{Use: "lastcallctl", Short: "Prove that a rollout was clean, and that clients come back", SilenceUsage: true, SilenceErrors: true}
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.AddCommand(proveCommand(stdout, stderr), rehearseCommand(stdout, stderr), reportCommand(stdout), appCommand(stdout, stderr))
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	code := exitUsage
	var s status
	if errors.As(err, &s) {
		code = s.code
	}
	if s.err == nil || s.err.Error() != "" {
		_, _ = fmt.Fprintf(stderr, "lastcallctl: %v\n", err)
	}
	return code
}
