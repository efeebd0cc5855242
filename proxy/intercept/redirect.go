package intercept

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// tableName is the nftables table that Redirect owns: nothing else is read or changed.
const tableName = "lastcall"

// RedirectConfig says which connections of this network namespace are brought to the sidecar.
type RedirectConfig struct {
	InboundPorts []uint16 // connections from outside to these ports go to InboundTo
	InboundTo    uint16
	OutboundTo   uint16 // the namespace's own connections go there; 0: none
	ExemptUID    uint32 // but for those of this user: the sidecar's own
}

// Redirect sets the rules, in place of those of an earlier call. It needs CAP_NET_ADMIN.
func Redirect(cfg RedirectConfig) error {
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("intercept: nftables: %w", err)
	}
	table := &nftables.Table{Name: tableName, Family: nftables.TableFamilyINet}
	c.AddTable(table) // so that the deletion finds one
	c.DelTable(table)
	c.AddTable(table)
	if len(cfg.InboundPorts) > 0 {
		pre := c.AddChain(&nftables.Chain{Name: "inbound", Table: table, Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityNATDest})
		for _, port := range cfg.InboundPorts {
			c.AddRule(&nftables.Rule{Table: table, Chain: pre, Exprs: append(append(tcpTo(port), notLoopback(expr.MetaKeyIIFNAME)...), redirectTo(cfg.InboundTo)...)})
		}
	}
	if cfg.OutboundTo != 0 {
		out := c.AddChain(&nftables.Chain{Name: "outbound", Table: table, Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityNATDest})
		exempt := []expr.Any{
			&expr.Meta{Key: expr.MetaKeySKUID, Register: 1},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(cfg.ExemptUID)},
		}
		c.AddRule(&nftables.Rule{Table: table, Chain: out, Exprs: append(append(append(tcp(), notLoopback(expr.MetaKeyOIFNAME)...), exempt...), redirectTo(cfg.OutboundTo)...)})
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("intercept: setting redirect rules (CAP_NET_ADMIN needed): %w", err)
	}
	return nil
}

// Undo takes the rules away; that there are none is no error.
func Undo() error {
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("intercept: nftables: %w", err)
	}
	c.DelTable(&nftables.Table{Name: tableName, Family: nftables.TableFamilyINet})
	if err := c.Flush(); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("intercept: removing redirect rules: %w", err)
	}
	return nil
}

func tcp() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
	}
}

func tcpTo(port uint16) []expr.Any {
	return append(tcp(),
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2}, // destination port
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binary.BigEndian.AppendUint16(nil, port)},
	)
}

func notLoopback(key expr.MetaKey) []expr.Any {
	name := make([]byte, unix.IFNAMSIZ)
	copy(name, "lo")
	return []expr.Any{
		&expr.Meta{Key: key, Register: 1},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: name},
	}
}

func redirectTo(port uint16) []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: 1, Data: binary.BigEndian.AppendUint16(nil, port)},
		&expr.Redir{RegisterProtoMin: 1},
	}
}
