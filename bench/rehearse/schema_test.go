package rehearse_test

import (
	"testing"

	"github.com/lastcall-proxy/lastcall/bench/benchtest"
	"github.com/lastcall-proxy/lastcall/bench/rehearse"
)

func TestSchemaIsFresh(t *testing.T) {
	benchtest.SchemaFresh(t, &rehearse.Result{}, rehearse.Schema, "bench/rehearse")
}
