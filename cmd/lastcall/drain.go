package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
)

// drainState is what the command shows of GET /v1/drain.
type drainState struct {
	Phase     string `json:"phase"`
	Deadline  string `json:"deadline"`
	Remaining struct {
		Connections int `json:"connections"`
		Streams     int `json:"streams"`
	} `json:"remaining"`
	Survivors []row `json:"survivors"`
}

var errNotDrained = errors.New("not drained within --timeout")

func drainCommand(stdout io.Writer) *cobra.Command {
	var c client
	var wait bool
	var limit time.Duration
	cmd := &cobra.Command{Use: "drain", Short: "Ask a running sidecar to drain", Args: cobra.NoArgs}
	c.bind(cmd)
	cmd.Flags().BoolVar(&wait, "wait", false, "follow the drain to its end")
	cmd.Flags().DurationVar(&limit, "timeout", 60*time.Second, "how long to follow it")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if limit <= 0 {
			return fmt.Errorf("--timeout %v: must be more than nothing", limit)
		}
		var s drainState
		if err := c.ask(cmd.Context(), "POST", "/v1/drain", &s); err != nil {
			return err
		}
		if !wait {
			_, err := fmt.Fprintf(stdout, "draining: %d connections, %d streams\n", s.Remaining.Connections, s.Remaining.Streams)
			return failed(err)
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), limit)
		defer cancel()
		return follow(ctx, &c, stdout)
	}
	return cmd
}

// follow prints the phases, and who holds the drain, until it is done.
func follow(ctx context.Context, c *client, out io.Writer) error {
	began, phase, shown := time.Now(), "", time.Time{}
	for {
		var s drainState
		if err := c.ask(ctx, "GET", "/v1/drain", &s); err != nil {
			if ctx.Err() != nil {
				return failed(errNotDrained)
			}
			return err
		}
		if s.Phase != phase || time.Since(shown) >= 5*time.Second {
			phase, shown = s.Phase, time.Now()
			if _, err := fmt.Fprintf(out, "%6.1fs  %-9s %d connections, %d streams\n", time.Since(began).Seconds(), s.Phase, s.Remaining.Connections, s.Remaining.Streams); err != nil {
				return failed(err)
			}
			for _, r := range s.Survivors[:min(5, len(s.Survivors))] {
				if _, err := fmt.Fprintf(out, "         %-8s %-9s %-21s %s waiting on %s %s\n", r.ID, r.Kind, r.Client, span(r.Age), r.Waiting, r.Path); err != nil {
					return failed(err)
				}
			}
		}
		if s.Phase == "done" {
			return nil
		}
		if !pause(ctx, 200*time.Millisecond) {
			return failed(errNotDrained)
		}
	}
}
