package admin_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/lastcall-proxy/lastcall/tracker"
	"github.com/lastcall-proxy/lastcall/tracker/admin"
	"github.com/lastcall-proxy/lastcall/tracker/trackertest"
)

type controller struct {
	calls   []string
	drained chan struct{}
}

func (c *controller) StartDrain(by string) error { c.calls = append(c.calls, "start "+by); return nil }
func (c *controller) CancelDrain() error {
	return fmt.Errorf("%w: %w", admin.ErrConflict, errors.New("not draining"))
}
func (c *controller) Inspect(uint64) *admin.HTTP2 {
	return &admin.HTTP2{Window: tracker.Sides[int64]{Client: 65535, App: 7}, PingRTT: admin.RoundTrips{Client: new(tracker.Seconds(0.25))}, Streams: map[string]admin.HTTP2Stream{"c1.1": {Window: tracker.Sides[int64]{Client: 1, App: -2}}}}
}
func (c *controller) Drained() <-chan struct{} { return c.drained }
func (c *controller) CloseConn(id uint64, polite bool) error {
	if id != 1 {
		return admin.ErrNotFound
	}
	c.calls = append(c.calls, fmt.Sprintf("close %d polite=%t", id, polite))
	return nil
}

func setup(t *testing.T, token string) (api, telemetry *httptest.Server, ctl *controller, reg *tracker.Registry) {
	t.Helper()
	reg = trackertest.New(t, tracker.Config{Shards: 1})
	ctl = &controller{drained: make(chan struct{})}
	cfg := admin.Config{Registry: reg, Controller: ctl, Token: token, HookToken: "hook", Ready: func() (bool, string) { return false, "draining" }, Settings: func() any { return map[string]int{"a": 1} },
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "m 1\n") })}
	api, telemetry = httptest.NewServer(admin.NewAdmin(cfg)), httptest.NewServer(admin.NewTelemetry(cfg))
	t.Cleanup(func() { api.Close(); telemetry.Close() })
	return api, telemetry, ctl, reg
}

func call(t *testing.T, method, url string, header ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
		}
		r.Header.Set(header[i], header[i+1])
	}
	tr := &http.Transport{DisableKeepAlives: true}
	res, err := tr.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

func TestRoutes(t *testing.T) {
	api, tel, ctl, reg := setup(t, "")
	c := reg.Shard(0).OpenConn(tracker.ConnFacts{Client: "192.0.2.1:5", App: "a", OpenedAt: reg.Now()})
	defer func() { c.End(tracker.End{Fate: tracker.Completed, By: tracker.ByClient}) }()
	close(ctl.drained)
	tests := []struct {
		method, url string
		header      []string
		status      int
		body        string
	}{
		{"GET", tel.URL + "/livez", nil, 200, "ok"},
		{"GET", tel.URL + "/readyz", nil, 503, "draining"},
		{"GET", tel.URL + "/metrics", nil, 200, "m 1"},
		{"GET", tel.URL + "/hooks/hook/prestop", nil, 200, "draining"},
		{"GET", tel.URL + "/hooks/hook/wait?max=1s", nil, 200, "drained"},
		{"GET", tel.URL + "/hooks/hook/wait?max=-1s", nil, 400, "max"},
		{"GET", tel.URL + "/hooks/guess/prestop", nil, 404, "not_found"},
		{"GET", tel.URL + "/v1/drain", nil, 404, "not_found"},
		{"GET", api.URL + "/v1/connections", nil, 200, `"id":"c1"`},
		{"GET", api.URL + "/v1/streams", nil, 200, `"streams":[]`},
		{"GET", api.URL + "/v1/streams?state=nope", nil, 400, "state"},
		{"GET", api.URL + "/v1/streams?limit=1001", nil, 400, "limit"},
		{"GET", api.URL + "/v1/streams?colour=red", nil, 400, "colour"},
		{"GET", api.URL + "/v1/streams?kind=sse&older=1s&idle=1s&waiting_on=app&sort=idle&limit=1000&direction=inbound&state=closed&fate=cut", nil, 200, `"next_cursor":""`},
		{"GET", api.URL + "/v1/connections/c1", nil, 200, `"connection":{"id":"c1"`},
		{"GET", api.URL + "/v1/connections/c1", nil, 200, `"http2":{"window":{"client":65535,"app":7},"ping_rtt_s":{"client":0.25},"streams":{"c1.1":{"window":{"client":1,"app":-2}}}}`},
		{"GET", api.URL + "/v1/connections/c9", nil, 404, "not_found"},
		{"GET", api.URL + "/v1/connections/x", nil, 400, "bad_parameter"},
		{"DELETE", api.URL + "/v1/connections/c1?mode=polite", nil, 204, ""},
		{"DELETE", api.URL + "/v1/connections/1?mode=cut", nil, 204, ""},
		{"DELETE", api.URL + "/v1/connections/1?mode=x", nil, 400, "mode"},
		{"DELETE", api.URL + "/v1/connections/2", nil, 404, "not_found"},
		{"GET", api.URL + "/v1/drain", nil, 200, `"phase":"serving"`},
		{"POST", api.URL + "/v1/drain", nil, 202, `"phase"`},
		{"POST", api.URL + "/v1/drain", []string{"Origin", "http://evil.example"}, 403, "cross_origin"},
		{"DELETE", api.URL + "/v1/drain", nil, 409, "conflict"},
		{"GET", api.URL + "/v1/report", nil, 200, "{"},
		{"GET", api.URL + "/v1/config", nil, 200, `{"a":1}`},
		{"GET", api.URL + "/debug/pprof/", nil, 200, "goroutine"},
		{"GET", api.URL + "/nothing", nil, 404, "not_found"},
		{"GET", api.URL + "/", nil, 200, "<title>lastcall</title>"},
		{"POST", api.URL + "/v1/streams", nil, 405, "method_not_allowed"},
		{"DELETE", tel.URL + "/metrics", nil, 405, "method_not_allowed"},
		{"GET", api.URL + "/v1/streams?older=-5s", nil, 400, "older"},
		{"GET", api.URL + "/v1/streams?state=open&state=closed", nil, 400, "given 2 times"},
		{"GET", api.URL + "/v1/streams?kind=%zz", nil, 400, "bad_parameter"},
		{"GET", api.URL + "/v1/drain", []string{"Host", "rebound.example"}, 403, "bad_host"},
	}
	for _, tt := range tests {
		t.Run(tt.method+" "+tt.url[strings.LastIndex(tt.url[:len("http://127.0.0.1:")], ":")+1:], func(t *testing.T) {
			status, body := call(t, tt.method, tt.url, tt.header...)
			if status != tt.status || !strings.Contains(body, tt.body) {
				t.Errorf("got %d %q, want %d with %q", status, body, tt.status, tt.body)
			}
		})
	}
	if got, want := strings.Join(ctl.calls, ", "), "start prestop, close 1 polite=true, close 1 polite=false, start api"; got != want {
		t.Errorf("calls: got %q, want %q", got, want)
	}
}

func TestToken(t *testing.T) {
	api, _, _, _ := setup(t, "secret")
	for header, want := range map[string]int{"": 401, "Bearer wrong": 401, "secret": 401, "Bearer secret": 200} {
		if got, _ := call(t, "GET", api.URL+"/v1/drain", "Authorization", header); got != want {
			t.Errorf("Authorization %q: got %d, want %d", header, got, want)
		}
	}
}

func TestEvents(t *testing.T) {
	api, _, _, reg := setup(t, "")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, api.URL+"/v1/events", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := (&http.Transport{}).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	c := reg.Shard(0).OpenConn(tracker.ConnFacts{Client: "192.0.2.1:5", App: "a", OpenedAt: reg.Now()})
	c.End(tracker.End{Fate: tracker.Completed, By: tracker.ByClient})
	in := bufio.NewReader(res.Body)
	for _, want := range []string{"event: opened", `"id":"c1"`, "", "event: ended", `"fate":"completed"`} {
		line, err := in.ReadString('\n')
		if err != nil || !strings.Contains(line, want) {
			t.Errorf("line: got %q (%v), want %q", line, err, want)
		}
	}
}
