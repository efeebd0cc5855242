package peers

import (
	"net"
	"path/filepath"
	"strconv"
)

// The peers of the HTTP/2 scenarios, all without TLS (prior knowledge).

// AppHTTP2 is nghttpd, serving the files of dir.
func AppHTTP2(dir string) Spec {
	return Spec{Name: "app-http2", Binary: "nghttpd", args: func(p ports) []string {
		host, port, _ := net.SplitHostPort(p.listen)
		return []string{"--no-tls", "-a", host, "-d", filepath.Clean(dir), port}
	}}
}

// HAProxyHTTP2 reads HTTP/2 and speaks it to the app.
func HAProxyHTTP2() Spec {
	return Spec{Name: "haproxy-http2", Binary: "haproxy", args: fileArg("-f"), config: func(p ports) string {
		return "global\n  nbthread 1\n  maxconn 9000\ndefaults\n  mode http\n  timeout connect 5s\n  timeout client 10m\n  timeout server 10m\n  http-reuse always\n" +
			"listen l\n  bind " + p.listen + " proto h2\n  server s " + p.app + " proto h2\n"
	}}
}

// NginxStream is nginx as a TCP relay.
func NginxStream() Spec {
	return Spec{Name: "nginx-stream", Binary: "nginx", args: fileArg("-c"), config: func(p ports) string {
		return "load_module /usr/lib/nginx/modules/ngx_stream_module.so;\n" + nginxHead(p.dir) + "stream { server { listen " + p.listen + " backlog=4096; proxy_pass " + p.app + "; } }\n"
	}}
}

// NginxGRPC is nginx with grpc_pass.
func NginxGRPC() Spec {
	return Spec{Name: "nginx-grpc", Binary: "nginx", args: fileArg("-c"), config: func(p ports) string {
		return nginxHead(p.dir) + "http { access_log off; keepalive_requests 100000000; upstream u { server " + p.app + "; keepalive 100; keepalive_requests 100000000; }\n" +
			" server { listen " + p.listen + " http2 backlog=4096; http2_max_concurrent_streams 1000; location / { grpc_pass grpc://u; } } }\n"
	}}
}

// EnvoyHTTP2 is one HTTP connection manager in front of an HTTP/2 cluster, with so many workers.
func EnvoyHTTP2(workers int) Spec {
	s := Envoy("http")
	s.Name = "envoy-http2"
	if workers > 1 {
		s.Name += "-" + strconv.Itoa(workers)
		s.args = envoyArgs(workers)
	}
	plain := s.config
	s.config = func(p ports) string {
		return replaceOnce(plain(p), "{name: app, type: STATIC,", `{name: app, type: STATIC, typed_extension_protocol_options: {envoy.extensions.upstreams.http.v3.HttpProtocolOptions: {"@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions, explicit_http_config: {http2_protocol_options: {}}}},`)
	}
	return s
}
