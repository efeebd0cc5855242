package main

import (
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/lastcall-proxy/lastcall/bench/rehearse"
)

func rehearseCommand(stdout, stderr io.Writer) *cobra.Command {
	p := rehearse.Defaults()
	var share string
	var out outputs
	cmd := &cobra.Command{
		Use:   "rehearse --sidecar ADDR [--share 10%] [--kind KINDS] [--mode MODE]",
		Short: "Take a share of the open streams away from their clients and watch who comes back",
		Long: "Ends, silences or sends away a share of the streams that are open at a running sidecar, without stopping anything, and watches their clients return.\n" +
			"MODE is polite (each protocol's own end), goaway (HTTP/2 GOAWAY, HTTP/1 Connection: close), reset, half-open (no byte moves for --hold) or refuse-new (polite, and new connections are refused for --hold).\n" +
			"Whole connections are taken, never more streams than the share, one connection at least. An interrupt undoes silences and refusals; without one they end by themselves.\n" +
			"Exit status: 0 done and within the limits, 1 a limit is not met, 2 usage, 3 it could not be done or was interrupted.",
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringVar(&p.Sidecar, "sidecar", "", "admin address of the sidecar whose streams are taken")
	f.StringArrayVar(&p.Landing, "landing", nil, "admin address of another sidecar at which clients may come back; may be given several times")
	f.StringVar(&p.TokenFile, "sidecar-token-file", "", "file with the admin API's bearer token")
	f.StringVar(&share, "share", "10%", "how much of the streams of these kinds")
	f.StringSliceVar(&p.Kinds, "kind", p.Kinds, "kinds of stream, comma-separated")
	f.StringVar(&p.Mode, "mode", p.Mode, "polite, goaway, reset, half-open or refuse-new")
	f.DurationVar(&p.Over, "over", 0, "take them one by one over this time (0: at once)")
	f.DurationVar(&p.Hold, "hold", 0, "how long half-open and refuse-new last")
	f.DurationVar(&p.Watch, "watch", p.Watch, "how long to watch after the last one")
	f.StringVar(&p.Identity, "identity", p.Identity, "what tells clients apart: auto (certificate or --identity-header of the sidecar, else address, with the path), identity, ip-path or ip")
	f.BoolVar(&p.Yes, "yes", false, "more than 10 % is meant, and so is refuse-new")
	f.BoolVar(&p.DryRun, "dry-run", false, "say what would be taken")
	f.IntVar(&p.Limits.Never, "max-never", -1, "clients that may not come back (-1: not judged)")
	f.DurationVar(&p.Limits.ReconnectP99, "max-reconnect-p99", -1, "how long clients may take to be back; those who are not count as slower (negative: not judged)")
	f.Float64Var(&p.Limits.Bunching, "max-bunching", -1, "peak arrivals per 100 ms over their mean, which is over --hold and --watch together (negative: not judged)")
	f.StringVar(&out.json, "json", "", "write the document ("+rehearse.Schema+") here")
	f.StringVar(&out.junit, "junit", "", "write JUnit XML here")
	f.StringVar(&out.html, "html", "", "write the page here")
	f.StringVarP(&out.form, "output", "o", "text", "text or json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var err error
		if p.Share, err = rehearse.ParseShare(share); err != nil {
			return err
		}
		if err := p.Validate(); err != nil {
			return err
		}
		if err := out.open(); err != nil {
			return err
		}
		r, err := rehearse.Run(cmd.Context(), &p, stderr)
		if err != nil {
			out.close()
			if errors.Is(err, rehearse.ErrWantsYes) {
				return err
			}
			return status{err, exitNoVerdict}
		}
		if p.DryRun && out.form == "text" {
			stdout = io.Discard // it is said already
		}
		if err := out.tell(r, stdout); err != nil {
			return err
		}
		switch {
		case p.DryRun:
			return nil
		case r.Partial:
			return status{errors.New("partial: " + r.Reason), exitNoVerdict}
		case r.Verdict != "met":
			return status{errors.New(r.Reason), exitNotProven}
		}
		return nil
	}
	return cmd
}
