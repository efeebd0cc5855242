// Command lastcall is the sidecar: it relays a workload's connections, drains them on SIGTERM and says how each one ended.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
)

// Exit statuses.
const (
	exitFailure = 1 // could not start
	exitUsage   = 2 // bad flags or values; nothing has listened
)

func main() { os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr)) }

// defaultTermination is Kubernetes' default path, where there is one.
func defaultTermination() string {
	const path = "/dev/termination-log"
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

// failure is an error that is not the caller's.
type failure struct{ error }

func (f failure) Unwrap() error { return f.error }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := &cobra.Command{Use: "lastcall", Short: "A sidecar that knows every connection and says how each one ended", SilenceUsage: true, SilenceErrors: true}
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	var s settings
	serveCmd := &cobra.Command{Use: "run", Short: "Relay, drain on SIGTERM, tell every fate", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		if err := s.validate(cmd.Flags().Changed); err != nil {
			return err
		}
		return serve(cmd.Context(), s, stderr)
	}}
	f := serveCmd.Flags()
	f.StringArrayVar(&s.inbound, "inbound", nil, "LISTEN=APP: what to serve, and the app behind it (host:port or unix:PATH)")
	f.DurationVar(&s.lameduck, "lameduck", 5*time.Second, "how long after SIGTERM everything new is still served")
	f.DurationVar(&s.timeout, "drain-timeout", 30*time.Second, "what is open this long after SIGTERM is cut")
	f.DurationVar(&s.closing, "closing-window", 5*time.Second, "the last part of the drain, in which long-lived streams are ended politely")
	f.StringVar(&s.late, "late", "reject", "what late arrivals get: reject, serve or refuse")
	f.IntVar(&s.maxConns, "max-connections", 0, "most connections at once; 0: from the descriptor limit")
	f.StringVar(&s.telemetry, "telemetry", ":4182", "where /livez, /readyz, /metrics and the hooks are served")
	f.StringVar(&s.admin, "admin", "127.0.0.1:4183", "where the admin API is served; not on loopback it needs --admin-token-file")
	f.StringVar(&s.adminTokenFile, "admin-token-file", "", "file with the bearer token of the admin API")
	f.StringVar(&s.hookTokenFile, "hook-token-file", "", "file with the token in the hooks' paths; without it there are no hooks")
	f.DurationVar(&s.finalScrape, "final-scrape", 0, "how long /metrics waits, after the last connection, for one more scrape")
	f.StringVar(&s.fateLog, "fate-log", "-", "where fate lines go: a file, or - for beside the log on stderr")
	f.StringVar(&s.reportFile, "report-file", "", "where the report goes at the end, as JSON")
	f.StringVar(&s.termination, "termination-message", defaultTermination(), "where the report's short form goes (4096 bytes at most)")
	demoCmd := &cobra.Command{Use: "demo", Short: "App, sidecar and clients in one terminal; SIGTERM; the timeline, the fates", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		if err := demo(cmd.Context(), stdout); err != nil {
			return failure{err}
		}
		return nil
	}}
	root.AddCommand(serveCmd, demoCmd)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	_, _ = fmt.Fprintf(stderr, "lastcall: %v\n", err)
	if _, ok := errors.AsType[failure](err); ok {
		return exitFailure
	}
	return exitUsage
}
