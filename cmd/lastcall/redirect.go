package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/lastcall-proxy/lastcall/proxy/intercept"
)

// redirectCommand sets the rules that bring a pod's connections to the sidecar; it is for a small init container that may.
func redirectCommand(stdout io.Writer) *cobra.Command {
	var inbound []uint
	var inboundTo, outboundTo uint16
	var exempt int64
	var undo bool
	cmd := &cobra.Command{Use: "redirect", Short: "Redirect this network namespace's connections to the sidecar (needs CAP_NET_ADMIN)", Args: cobra.NoArgs}
	f := cmd.Flags()
	f.UintSliceVar(&inbound, "inbound-ports", nil, "ports whose connections from outside go to the sidecar")
	f.Uint16Var(&inboundTo, "inbound-to", 4180, "the sidecar's transparent inbound port")
	f.Uint16Var(&outboundTo, "outbound-to", 0, "the sidecar's transparent outbound port; 0: outbound is left alone")
	f.Int64Var(&exempt, "exempt-uid", -1, "the sidecar's user, whose own connections are not redirected; needed with --outbound-to")
	f.BoolVar(&undo, "undo", false, "take the rules away")
	cmd.RunE = func(*cobra.Command, []string) error {
		if undo {
			return failed(intercept.Undo())
		}
		cfg := intercept.RedirectConfig{InboundTo: inboundTo, OutboundTo: outboundTo}
		for _, p := range inbound {
			if p < 1 || p > 65535 {
				return fmt.Errorf("--inbound-ports %d: want 1 to 65535", p)
			}
			cfg.InboundPorts = append(cfg.InboundPorts, uint16(p))
		}
		switch {
		case len(inbound) == 0 && outboundTo == 0:
			return errors.New("--inbound-ports, --outbound-to: nothing to redirect")
		case outboundTo != 0 && (exempt < 0 || exempt > 1<<32-2):
			return errors.New("--exempt-uid: needed with --outbound-to, or the sidecar's own connections come back to it")
		case outboundTo != 0:
			cfg.ExemptUID = uint32(exempt)
		}
		if err := intercept.Redirect(cfg); err != nil {
			return failed(err)
		}
		_, err := fmt.Fprintf(stdout, "redirected: inbound ports %v to %d; outbound to %d (0: left alone)\n", inbound, inboundTo, outboundTo)
		return failed(err)
	}
	return cmd
}
