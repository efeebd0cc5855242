package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"github.com/lastcall-proxy/lastcall/bench/load"
	"github.com/lastcall-proxy/lastcall/bench/proof"
	"github.com/lastcall-proxy/lastcall/bench/prove"
)

// proveFlags are what the command line says; a plan file says the same.
type proveFlags struct {
	plan              string
	loads             []string
	pid               int
	signal, command   string
	none              bool
	reconnect         string
	json, junit, html string
	output            string
}

func proveCommand(stdout, stderr io.Writer) *cobra.Command {
	p := prove.Defaults()
	var o proveFlags
	cmd := &cobra.Command{
		Use:   "prove (--plan FILE | --load KIND=TARGET[,key=value…] …) (--signal-pid PID | --exec COMMAND | --none)",
		Short: "Terminate something under load and say whether anybody noticed",
		Long: "Drives loads, waits for a steady baseline, terminates the target, and joins what the clients saw with what the sidecars tell.\n" +
			"KIND is http1, http1-new, http2, grpc-unary (rate=R, conns=N) or grpc-stream, websocket, sse, tcp (sessions=N, interval=D); all take size=B, timeout=D, insecure=true.\n" +
			"Exit status: 0 proven, 1 not proven, 2 usage, 3 no verdict possible.",
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringVar(&o.plan, "plan", "", "read the plan from this file (YAML, the flags' names in snake_case)")
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
	f.IntVar(&p.Limits.FailedRequests, "max-failed-requests", 0, "requests that may fail")
	f.IntVar(&p.Limits.Unexplained, "max-unexplained", 0, "failures that may have no known cause")
	f.IntVar(&p.Limits.CutStreams, "max-cut-streams", -1, "sessions that may end without a goodbye (-1: not judged)")
	f.IntVar(&p.Limits.LostMessages, "max-lost-messages", -1, "messages of sessions that may have no answer (-1: not judged)")
	f.DurationVar(&p.Limits.ReconnectP99, "max-reconnect-p99", -1, "how long clients may take to be back (negative: not judged)")
	f.StringVar(&o.json, "json", "", "write the document (lastcall.prove/v1) here")
	f.StringVar(&o.junit, "junit", "", "write JUnit XML here")
	f.StringVar(&o.html, "html", "", "write the page here")
	f.StringVarP(&o.output, "output", "o", "text", "text or json")
	cmd.MarkFlagsMutuallyExclusive("plan", "load")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := o.complete(&p); err != nil {
			return err
		}
		files, err := o.open() // before anything is terminated
		if err != nil {
			return err
		}
		if os.Getenv("GOMEMLIMIT") == "" {
			debug.SetMemoryLimit(memoryLimit)
		}
		result := prove.Run(cmd.Context(), &p, stderr)
		return o.tell(result, files, stdout)
	}
	return cmd
}

// memoryLimit is soft: 20 000 requests/s beside 7000 sessions keep under it for 8 % more processor time; without it they
// take 620 MiB. GOMEMLIMIT is stronger.
const memoryLimit = 470 << 20

// complete turns the strings into the plan.
func (o *proveFlags) complete(p *prove.Plan) error {
	if o.output != "text" && o.output != "json" {
		return fmt.Errorf("-o %q: want text or json", o.output)
	}
	p.Reconnect = load.Reconnect(o.reconnect)
	for _, text := range o.loads {
		s, err := load.ParseSpec(text)
		if err != nil {
			return fmt.Errorf("--load %s: %w", text, err)
		}
		p.Loads = append(p.Loads, s)
	}
	target, err := prove.NewTarget(o.pid, o.signal, o.command, o.none)
	if err != nil {
		return err
	}
	if target != nil {
		p.Target = target
	}
	if o.plan != "" {
		b, err := os.ReadFile(o.plan)
		if err != nil {
			return fmt.Errorf("--plan: %w", err)
		}
		if err := prove.ReadPlan(b, p); err != nil {
			return fmt.Errorf("--plan %s: %w", o.plan, err)
		}
		return nil
	}
	return p.Validate()
}

type outputs struct{ json, junit, html *os.File }

// open makes the files: a proof whose result can't be written is not begun.
func (o *proveFlags) open() (out outputs, err error) {
	for _, f := range []struct {
		flag, path string
		to         **os.File
	}{{"--json", o.json, &out.json}, {"--junit", o.junit, &out.junit}, {"--html", o.html, &out.html}} {
		if f.path == "" {
			continue
		}
		if *f.to, err = os.Create(f.path); err != nil {
			return out, fmt.Errorf("%s: %w", f.flag, err)
		}
	}
	return out, nil
}

// tell writes every form and turns the verdict into the exit status. What can't be written is said, and the verdict goes
// to standard output all the same.
func (o *proveFlags) tell(p *proof.Proof, files outputs, stdout io.Writer) error {
	var errs []error
	write := func(flag string, f *os.File, form func(io.Writer) error) {
		if f == nil {
			return
		}
		var b bytes.Buffer
		err := form(&b)
		if err == nil {
			_, err = f.Write(b.Bytes())
		}
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", flag, err))
		}
	}
	write("--json", files.json, func(w io.Writer) error { return encode(w, p) })
	write("--junit", files.junit, p.JUnit)
	write("--html", files.html, p.HTML)
	form := p.Text
	if o.output == "json" {
		form = func(w io.Writer) error { return encode(w, p) }
	}
	if err := form(stdout); err != nil {
		errs = append(errs, fmt.Errorf("standard output: %w", err))
	}
	if o.html != "" && o.output == "text" && len(errs) == 0 {
		_, _ = fmt.Fprintf(stdout, "page: %s\n", o.html)
	}
	if len(errs) > 0 {
		return status{errors.Join(errs...), exitNoVerdict}
	}
	switch p.Verdict {
	case proof.Proven:
		return nil
	case proof.NotProven:
		return status{errors.New(""), exitNotProven}
	case proof.NoVerdict:
	}
	return status{errors.New("no verdict: " + p.Reason), exitNoVerdict}
}

func encode(w io.Writer, p *proof.Proof) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", " ")
	return enc.Encode(p)
}

func reportCommand(stdout io.Writer) *cobra.Command {
	var format string
	cmd := &cobra.Command{Use: "report FILE", Short: "Show a proof's JSON in another form", Args: cobra.ExactArgs(1)}
	cmd.Flags().StringVarP(&format, "output", "o", "text", "text, markdown, junit or html")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		b, err := os.ReadFile(args[0])
		if err != nil {
			return err
		}
		var p proof.Proof
		if err := json.Unmarshal(b, &p); err != nil {
			return fmt.Errorf("%s: %w", args[0], err)
		}
		if p.Schema != proof.Schema {
			return fmt.Errorf("%s: schema %q, this reads %q", args[0], p.Schema, proof.Schema)
		}
		forms := map[string]func(io.Writer) error{"text": p.Text, "markdown": p.Markdown, "junit": p.JUnit, "html": p.HTML}
		form, ok := forms[format]
		if !ok {
			return fmt.Errorf("-o %q: want text, markdown, junit or html", format)
		}
		if err := form(stdout); err != nil {
			return status{err, exitNoVerdict}
		}
		return nil
	}
	return cmd
}

// drainTime is the embedded app's own.
const drainTime = 20 * time.Second
