package main

import "github.com/lastcall-proxy/lastcall/bench/report"

// limits are the promises on speed and memory, as ratios in one run.
func limits() []report.Limit {
	most := func(scenario, other string, v float64) report.Limit {
		return report.Limit{Scenario: scenario, Peer: ours, Other: other, AtMost: true, Value: v}
	}
	least := func(scenario, other string, v float64) report.Limit {
		return report.Limit{Scenario: scenario, Peer: ours, Other: other, Value: v}
	}
	var all []report.Limit
	for _, s := range []string{"cpu 128B, 50 conns", "cpu 128B, 500 conns"} {
		all = append(all, most(s, "haproxy-tcp", 1.10), most(s, "haproxy-http", 0.75), most(s, "nginx-http", 0.85))
	}
	for _, s := range []string{"cpu 16KB, 50 conns", "cpu 16KB, 500 conns"} {
		all = append(all, most(s, "haproxy-tcp", 0.85), most(s, "haproxy-http", 0.65), most(s, "nginx-http", 0.70))
	}
	all = append(all, most("cpu 1000/s", "haproxy-tcp", 1.15), most("cpu 5000/s", "haproxy-tcp", 1.15))
	for _, s := range []string{"cpu 128B, 50 conns", "cpu 128B, 500 conns", "cpu 16KB, 50 conns", "cpu 16KB, 500 conns", "cpu 2000/s"} {
		all = append(all, most(s, "envoy-http", 0.28), most(s, "envoy-tcp", 0.90))
	}
	for _, s := range []string{"cpu 128B, 50 conns", "cpu 128B, 500 conns"} {
		all = append(all, most(s, bare, 1.15))
	}
	ten, hundred := h2scenarios("http2")[0].name(), h2scenarios("http2")[1].name()
	all = append(all, most(ten, "haproxy-tcp", 1.4), most(ten, "haproxy-http2", 0.35), most(ten, "nginx-grpc", 0.35), most(ten, "envoy-http2", 0.08),
		most(hundred, "haproxy-http2", 0.20))
	return append(all,
		most("added p50 2000/s", "envoy-http", 0.30),
		most("cpu short connection", "haproxy-tcp", 1.20), most("cpu bulk", "haproxy-tcp", 0.75),
		least("throughput 50 conns", "haproxy-tcp", 0.95), least("throughput 50 conns", "haproxy-http", 1.25),
		most("idle http2 connection, fresh", "", 6), most("idle http2 connection, tables full", "", 16), most("idle http2 stream", "", 0.6), most("goaway to 5000", "", 300),
		most("idle connection", "", 2), most("idle connection", "envoy-http", 0.12), most("resident at start", "", 16), most("cpu while idle", "", 1),
		most("scrape, idle conns open", "", 10), most("list of 100, idle conns open", "", 10),
		most("errors", "", 0),
	)
}
