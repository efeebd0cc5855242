package proof_test

import (
	"testing"

	"github.com/lastcall-proxy/lastcall/bench/benchtest"
	"github.com/lastcall-proxy/lastcall/bench/proof"
)

func TestSchemaIsFresh(t *testing.T) {
	benchtest.SchemaFresh(t, &proof.Proof{}, proof.Schema, "bench/proof")
}
