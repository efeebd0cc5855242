package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/lastcall-proxy/lastcall/bench/load"
	"github.com/lastcall-proxy/lastcall/bench/proof"
	"github.com/lastcall-proxy/lastcall/bench/prove"
)

// proveFlags are what the command line says; a plan file says the same.
type proveFlags struct {
	plan            string
	loads           []string
	pid             int
	signal, command string
	none            bool
	reconnect       string
}

func proveCommand(stdout, stderr io.Writer) *cobra.Command {
	p := prove.Defaults()
	var o proveFlags
	var out outputs
	cmd := &cobra.Command{
		Use:     "prove (--plan FILE | --load KIND=TARGET[,key=value…] …) (--signal-pid PID | --exec COMMAND | --none)",
		Short:   "Terminate something under load and say whether anybody noticed",
		Example: "  lastcallctl prove --load http1=127.0.0.1:9080,rate=100 --load sse=127.0.0.1:9080/events,sessions=20 --signal-pid 1234 --sidecar 127.0.0.1:4183",
		Long: "Drives loads, waits for a steady baseline, terminates the target, and joins what the clients saw with what the sidecars tell.\n" +
			"KIND is http1, http1-new, http2, grpc-unary (rate=R, conns=N) or grpc-stream, websocket, sse, tcp (sessions=N, interval=D); all take size=B, timeout=D, insecure=true.\n" +
			"over=D sends an HTTP body slowly, mode=push|server|client lets one side of a websocket or grpc-stream talk, resume=true (sse) comes back with Last-Event-ID, retry=library lets the client's library try again.\n" +
			"data=BASE64 is the message of a gRPC method that is not the app's (TARGET host:port/package.Service/Method); ready=URL,next=HOST:PORT,lag=D stand for a Service: new connections go to next from lag after URL has ceased to answer 2xx.\n" +
			"Every failure counts against --max-failed-requests, but for cut sessions and lost messages that have a limit of their own. A signal ends it with a partial document.\n" +
			"Exit status: 0 proven, 1 not proven, 2 usage, 3 no verdict possible.",
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringVar(&o.plan, "plan", "", "read the plan from this file: YAML, the names of the flags from --load to --max-… in snake_case, loads and addresses as lists; flags win over it")
	f.StringArrayVar(&o.loads, "load", nil, "a load; may be given several times")
	f.IntVar(&o.pid, "signal-pid", 0, "the trigger: a signal to this process")
	f.StringVar(&o.signal, "signal", "", "which signal (TERM)")
	f.StringVar(&o.command, "exec", "", "the trigger: this command, by /bin/sh")
	f.BoolVar(&o.none, "none", false, "no trigger: you do it by hand after the baseline")
	f.DurationVar(&p.Warmup, "warmup", p.Warmup, "time before the baseline")
	f.DurationVar(&p.Baseline, "baseline", p.Baseline, "steady time before the trigger")
	f.DurationVar(&p.For, "for", p.For, "time under load after the trigger")
	f.DurationVar(&p.Settle, "settle", p.Settle, "how long to wait for the last fates")
	f.IntVar(&p.Repeat, "repeat", p.Repeat, "how often (with --exec); the worst run counts")
	f.StringArrayVar(&p.Sidecars, "sidecar", nil, "admin address of a sidecar whose fates explain failures")
	f.StringVar(&p.TokenFile, "sidecar-token-file", "", "file with the admin API's bearer token")
	f.StringArrayVar(&p.ReportFiles, "report-file", nil, "report file of the sidecar at the same place, for what ends after its API is gone")
	f.StringVar(&o.reconnect, "reconnect", "backoff", "what clients of ended sessions do: backoff, naive or never")
	f.IntVar(&p.Limits.FailedRequests, "max-failed-requests", 0, "attempts of any kind that may fail; sessions that were cut and messages that were lost count here unless they have a limit of their own")
	f.IntVar(&p.Limits.Unexplained, "max-unexplained", 0, "failures that may have no known cause")
	f.IntVar(&p.Limits.CutStreams, "max-cut-streams", -1, "sessions that may end without a goodbye (-1: they count as failed)")
	f.IntVar(&p.Limits.LostMessages, "max-lost-messages", -1, "messages of sessions that may have no answer (-1: they count as failed)")
	f.DurationVar(&p.Limits.ReconnectP99, "max-reconnect-p99", -1, "how long clients may take to be back (negative: not judged)")
	f.StringVar(&out.json, "json", "", "write the document (lastcall.prove/v1) here")
	f.StringVar(&out.junit, "junit", "", "write JUnit XML here")
	f.StringVar(&out.html, "html", "", "write the page here")
	f.StringVarP(&out.form, "output", "o", "text", "text or json")
	cmd.MarkFlagsMutuallyExclusive("plan", "load")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := o.complete(&p, cmd.Flags().Changed); err != nil {
			return err
		}
		if err := out.open(); err != nil {
			return err
		}
		if os.Getenv("GOMEMLIMIT") == "" {
			debug.SetMemoryLimit(memoryLimit)
		}
		result := prove.Run(cmd.Context(), &p, stderr)
		if err := out.tell(result, stdout); err != nil {
			return err
		}
		return judged(result)
	}
	return cmd
}

// memoryLimit is soft: 20 000 requests/s beside 7000 sessions keep under it for 8 % more processor time; without it they
// take 620 MiB. GOMEMLIMIT is stronger.
const memoryLimit = 470 << 20

// complete turns the strings into the plan.
func (o *proveFlags) complete(p *prove.Plan, given func(flag string) bool) error {
	p.Reconnect = load.Reconnect(o.reconnect)
	for _, text := range o.loads {
		s, err := load.ParseSpec(text)
		if err != nil {
			return fmt.Errorf("--load %s: %w", text, err)
		}
		p.Loads = append(p.Loads, s)
	}
	if o.plan != "" {
		b, err := os.ReadFile(o.plan)
		if err != nil {
			return fmt.Errorf("--plan: %w", err)
		}
		if err := prove.ReadPlan(b, p, &prove.CommandLine{PID: o.pid, Signal: o.signal, Exec: o.command, None: o.none, Given: given}); err != nil {
			return fmt.Errorf("--plan %s: %w", o.plan, err)
		}
		return nil
	}
	var err error
	if p.Target, err = prove.NewTarget(o.pid, o.signal, o.command, o.none); err != nil {
		return err
	}
	return p.Validate()
}

// judged turns the verdict into the exit status.
func judged(p *proof.Proof) error {
	switch p.Verdict {
	case proof.Proven:
		return nil
	case proof.NotProven:
		return status{errors.New(""), exitNotProven}
	case proof.NoVerdict:
	}
	return status{errors.New("no verdict: " + p.Reason), exitNoVerdict}
}
