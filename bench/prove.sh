#!/bin/sh
# Two pods on one machine: an app with a sidecar each. The first sidecar is told to stop under load of every kind, as a rollout
# does; new connections find the second as soon as the first is no longer ready, half a second later. Ends with the page's path.
set -eu
cd "$(dirname "$0")/.."
mkdir -p bin
go build -o bin/lastcall ./cmd/lastcall
go build -o bin/lastcallctl ./cmd/lastcallctl
pids=
trap 'for p in $pids; do kill "$p" 2>/dev/null || true; done' EXIT
pod() { # number
	bin/lastcallctl app --http 127.0.0.1:94${1}0 --tcp 127.0.0.1:94${1}1 >/dev/null 2>&1 & pids="$pids $!"
	bin/lastcall run --inbound 127.0.0.1:94${1}2=127.0.0.1:94${1}0 --inbound 127.0.0.1:94${1}3=127.0.0.1:94${1}1 --telemetry 127.0.0.1:94${1}4 --admin 127.0.0.1:94${1}5 \
		--lameduck 3s --drain-timeout 12s --closing-window 3s --report-file "bin/report-$1.json" >"bin/sidecar-$1.log" 2>&1 & sidecar=$!
	pids="$pids $sidecar"
	n=0
	until bin/lastcall conns --admin "127.0.0.1:94${1}5" >/dev/null 2>&1; do
		n=$((n + 1)); [ $n -lt 100 ] || { echo "pod $1 did not start: bin/sidecar-$1.log" >&2; exit 1; }
		sleep 0.1
	done
}
pod 2
pod 1
http=127.0.0.1:9412
service=ready=http://127.0.0.1:9414/readyz,next=127.0.0.1:9422,lag=500ms
bin/lastcallctl prove --load "http1=$http,rate=100,$service" --load "http1-new=$http,rate=30,$service" --load "http2=$http,rate=50,conns=4,$service" --load "grpc-unary=$http,rate=50,conns=4,$service" \
	--load "grpc-stream=$http,sessions=10,interval=200ms,$service" --load "websocket=ws://$http/ws,sessions=20,interval=200ms,$service" --load "sse=$http/events,sessions=10,$service" \
	--load "tcp=127.0.0.1:9413,sessions=5,interval=200ms,ready=http://127.0.0.1:9414/readyz,next=127.0.0.1:9423,lag=500ms" \
	--signal-pid "$sidecar" --sidecar 127.0.0.1:9415 --report-file bin/report-1.json --warmup 1s --baseline 3s --for 15s --settle 2s \
	--max-cut-streams 0 --max-lost-messages 0 --max-reconnect-p99 5s --json bin/proof.json --junit bin/proof.xml --html bin/proof.html
