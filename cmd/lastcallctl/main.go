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

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
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
