package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/lastcall-proxy/lastcall/bench/app"
)

func appCommand(stdout, stderr io.Writer) *cobra.Command {
	cfg := app.Config{}
	var manners, ledger string
	cmd := &cobra.Command{
		Use: "app", Short: "A workload to prove things on: HTTP/1, HTTP/2, gRPC, WebSocket, SSE on one port, TCP echo on another", Args: cobra.NoArgs,
		Long: "Paths: / (?for=2s answers later), /ws echoes, /ws?every=100ms pushes, /events?every=100ms (goes on behind Last-Event-ID), /readyz, /ledger.\n" +
			"Any gRPC method echoes; one that ends in Stream goes on, one in Push sends at the interval that it was sent, one in Upload counts what it is sent.\n" +
			"?plant=duplicate, reset, truncate, silent or close goes wrong once; sessions of /ws and /events take ?lose=N, duplicate=N, silent=N, reset=N, each once in the app's life, by the first that comes to its Nth message.\n" +
			"At its end it writes its ledger to standard output: what was begun, answered whole, and broken off, by kind.",
	}
	f := cmd.Flags()
	f.StringVar(&cfg.HTTP, "http", "127.0.0.1:9000", "where HTTP and gRPC are served")
	f.StringVar(&cfg.HTTPS, "https", "", "where the same is served over TLS, with a certificate made at the start")
	f.StringVar(&cfg.TCP, "tcp", "", "where TCP lines are echoed")
	f.StringVar(&cfg.TLS, "tls", "", "where they are echoed over TLS")
	f.DurationVar(&cfg.Timeout, "drain-timeout", drainTime, "how long a drain may take")
	f.StringVar(&manners, "on-sigterm", string(app.Drain), "drain, exit or ignore")
	f.StringVar(&ledger, "ledger", "", "write the ledger here at the end")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if cfg.Timeout <= 0 {
			return errors.New("--drain-timeout: must be more than nothing")
		}
		m := app.Manners(manners)
		if m != app.Drain && m != app.Exit && m != app.Ignore {
			return fmt.Errorf("--on-sigterm %q: want drain, exit or ignore", manners)
		}
		signals := make(chan os.Signal, 4)
		signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
		a, err := app.Start(cmd.Context(), cfg)
		if err != nil {
			return status{err, exitNotProven}
		}
		banner := "app: http " + a.HTTPAddr
		for _, also := range [][2]string{{"https", a.HTTPSAddr}, {"tcp", a.TCPAddr}, {"tls", a.TLSAddr}} {
			if also[1] != "" {
				banner += " " + also[0] + " " + also[1]
			}
		}
		_, _ = fmt.Fprintln(stderr, banner)
		for sig := range signals {
			if sig == syscall.SIGINT || m != app.Ignore {
				break
			}
		}
		signal.Stop(signals) // another ends it at once
		if m == app.Drain {
			a.Drain()
		}
		b, err := json.Marshal(a.Ledger())
		if err == nil && ledger != "" {
			err = os.WriteFile(ledger, append(b, '\n'), 0o644)
		}
		if err != nil {
			return status{fmt.Errorf("--ledger: %w", err), exitNotProven}
		}
		_, _ = fmt.Fprintf(stdout, "%s\n", b)
		if m == app.Exit {
			os.Exit(0) // without a goodbye to anybody
		}
		return nil
	}
	return cmd
}

// drainTime is the embedded app's own.
const drainTime = 20 * time.Second
