// Command lastcall is the sidecar: it relays a workload's connections, drains them on SIGTERM and says how each one ended.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/lastcall-proxy/lastcall/proxy/config"
)

// Exit statuses.
const (
	exitFailure = 1 // could not start, or the sidecar could not be reached
	exitUsage   = 2 // bad flags or values; nothing has listened
	exitStrict  = 3 // with --strict-exit: the drain cut, aborted or lost something
)

func main() { os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr)) }

// failure is an error that is not the caller's, with its exit status.
type failure struct {
	error
	status int
}

func (f failure) Unwrap() error { return f.error }

func failed(err error) error {
	if err == nil {
		return nil
	}
	return failure{err, exitFailure}
}

var errStrict = errors.New("the drain cut, aborted or lost something (--strict-exit)")

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := &cobra.Command{Use: "lastcall", Short: "A sidecar that knows every connection and says how each one ended", SilenceUsage: true, SilenceErrors: true}
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(runCommand(stderr), connsCommand(stdout), drainCommand(stdout), demoCommand(stdout), redirectCommand(stdout), versionCommand(stdout))
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	_, _ = fmt.Fprintf(stderr, "lastcall: %v\n", err)
	if f, ok := errors.AsType[failure](err); ok {
		return f.status
	}
	return exitUsage
}

func runCommand(stderr io.Writer) *cobra.Command {
	cmd := &cobra.Command{Use: "run", Short: "Relay, drain on SIGTERM, tell every fate", Args: cobra.NoArgs}
	loader := config.Bind(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := loader.Load(os.Getenv)
		if err != nil {
			return err
		}
		return serve(cmd.Context(), cfg, stderr)
	}
	return cmd
}

func demoCommand(stdout io.Writer) *cobra.Command {
	return &cobra.Command{Use: "demo", Short: "App, sidecar and clients in one terminal; SIGTERM; the timeline, the fates", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		return failed(demo(cmd.Context(), stdout))
	}}
}

// build tells what this binary was built from.
func build() (version, revision string) {
	version, revision = "devel", "unknown"
	b, ok := debug.ReadBuildInfo()
	if !ok {
		return version, revision
	}
	if b.Main.Version != "" && b.Main.Version != "(devel)" {
		version = b.Main.Version
	}
	for _, s := range b.Settings {
		if s.Key == "vcs.revision" {
			revision = s.Value
		}
	}
	return version, revision
}

func versionCommand(stdout io.Writer) *cobra.Command {
	return &cobra.Command{Use: "version", Short: "Print version, revision and Go version", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error {
		version, revision := build()
		_, err := fmt.Fprintf(stdout, "lastcall %s (revision %s, %s)\n", version, revision, runtime.Version())
		return failed(err)
	}}
}
