package prove_test

import (
	"encoding/binary"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// packets are what the kernel has seen of some ports' connections.
type packets struct {
	SYN      uint64 // to the port
	SYNACK   uint64 // from it
	Refusals uint64 // RST with sequence 0: the answer to a SYN that nobody listens for (RFC 9293, 3.10.7.1)
	RST      uint64 // from it, others
	Again    uint64 // SYNs that were repeated: a listener that is closing drops some
}

// counters count in the kernel, by nftables.
type counters struct {
	c     *nftables.Conn
	table *nftables.Table
	chain *nftables.Chain
	again uint64
}

// TCP's flags.
const (
	syn, rst, ack = 2, 4, 16
)

// countPackets begins to count. It needs a network namespace that is the test's own.
func countPackets(t *testing.T, addrs ...string) *counters {
	t.Helper()
	c, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	k := &counters{c: c, table: &nftables.Table{Name: "truth", Family: nftables.TableFamilyINet}}
	c.AddTable(k.table)
	c.DelTable(k.table)
	c.AddTable(k.table)
	k.chain = c.AddChain(&nftables.Chain{Name: "in", Table: k.table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookInput, Priority: nftables.ChainPriorityFilter})
	for _, addr := range addrs {
		_, text, err := net.SplitHostPort(addr)
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			t.Fatal(err)
		}
		port := binary.BigEndian.AppendUint16(nil, uint16(n))
		none := []byte{0, 0, 0, 0}
		k.rule("syn", 2, port, syn|ack, syn, nil, expr.CmpOpEq)
		k.rule("synack", 0, port, syn|ack, syn|ack, nil, expr.CmpOpEq)
		k.rule("refusal", 0, port, rst, rst, none, expr.CmpOpEq)
		k.rule("rst", 0, port, rst, rst, none, expr.CmpOpNeq)
	}
	if err := c.Flush(); err != nil {
		t.Fatalf("nftables: %v", err)
	}
	k.again = synRetrans(t)
	return k
}

// synRetrans is TCPSynRetrans of this namespace (Linux, /proc/net/netstat).
func synRetrans(t *testing.T) uint64 {
	t.Helper()
	b, err := os.ReadFile("/proc/net/netstat")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(b), "\n")
	for i := 0; i+1 < len(lines); i += 2 {
		names, values := strings.Fields(lines[i]), strings.Fields(lines[i+1])
		for k, name := range names {
			if name == "TCPSynRetrans" {
				n, err := strconv.ParseUint(values[k], 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
		}
	}
	t.Fatal("the kernel counts no TCPSynRetrans")
	return 0
}

// rule counts packets whose port (source at offset 0, destination at 2) and flags fit, and whose sequence number does.
func (k *counters) rule(name string, offset uint32, port []byte, mask, flags byte, sequence []byte, op expr.CmpOp) {
	e := []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: port},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 13, Len: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 1, Mask: []byte{mask}, Xor: []byte{0}},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{flags}},
	}
	if sequence != nil {
		e = append(e, &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 4, Len: 4}, &expr.Cmp{Op: op, Register: 1, Data: sequence})
	}
	k.c.AddRule(&nftables.Rule{Table: k.table, Chain: k.chain, Exprs: append(e, &expr.Counter{}), UserData: []byte(name)})
}

func (k *counters) read(t *testing.T) (p packets) {
	t.Helper()
	rules, err := k.c.GetRules(k.table, k.chain)
	if err != nil {
		t.Fatal(err)
	}
	to := map[string]*uint64{"syn": &p.SYN, "synack": &p.SYNACK, "refusal": &p.Refusals, "rst": &p.RST}
	for _, r := range rules {
		for _, e := range r.Exprs {
			if c, ok := e.(*expr.Counter); ok {
				*to[string(r.UserData)] += c.Packets
			}
		}
	}
	p.Again = synRetrans(t) - k.again
	return p
}
