package opaque_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lastcall-proxy/lastcall/proxy/observe"
	"github.com/lastcall-proxy/lastcall/proxy/observe/observetest"
	"github.com/lastcall-proxy/lastcall/proxy/observe/opaque"
)

func newObs(s observe.Sink) observe.Observer { return opaque.New(s) }

func TestOpaque(t *testing.T) {
	client, app, tell := observetest.Client, observetest.App, observetest.Tell
	open := []string{"s1 begin 0", "protocol 0", "s1 state 2 2"}
	refused := append(append([]string{}, open...), "s1 done 3 by client code 0", "close after")
	tests := []struct {
		name  string
		steps []observetest.Step
		want  observetest.Result
	}{
		{"client first", []observetest.Step{client("ask"), app("answer"), observetest.EOF(observe.FromClient)},
			observetest.Result{Out: [2]string{"ask", "answer"}, Events: open, Bytes: map[string]int{"s1 client": 3, "s1 app": 6}}},
		{"app first", []observetest.Step{app("220 ready"), client("x")},
			observetest.Result{Out: [2]string{"x", "220 ready"}, Events: open, Bytes: map[string]int{"s1 client": 1, "s1 app": 9}}},
		{"nothing", []observetest.Step{observetest.EOF(observe.FromClient)}, observetest.Result{Bytes: map[string]int{}}},
		{"no place for a goodbye", []observetest.Step{client("a"), tell(observe.OrderFarewell), tell(observe.OrderReject), tell(observe.OrderEnd), client("b"), app("c")},
			observetest.Result{Out: [2]string{"ab", "c"}, Events: open, Bytes: map[string]int{"s1 client": 2, "s1 app": 1}}},
		{"late", []observetest.Step{tell(observe.OrderReject), client("ask"), app("answer")},
			observetest.Result{Events: refused, Bytes: map[string]int{}}},
		{"late, drain cancelled", []observetest.Step{tell(observe.OrderReject), tell(observe.OrderServe), client("ask")},
			observetest.Result{Out: [2]string{"ask", ""}, Events: open, Bytes: map[string]int{"s1 client": 3}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, observetest.Splits(t, newObs, tt.steps)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestIdleUntilTheFirstByte(t *testing.T) {
	o := newObs(&observetest.Recorder{Bytes: make(map[string]int)})
	if !o.Idle() {
		t.Error("before the first byte: got busy, want idle")
	}
	o.Data(observe.FromApp, []byte("x"))
	if o.Idle() {
		t.Error("after the first byte: got idle, want busy")
	}
}
