.PHONY: demo test check fuzz

demo: ## app, sidecar and clients in one terminal; SIGTERM; the fates (15 s)
	go run ./cmd/lastcall demo

test: ## all tests, with the race detector
	go test -race -shuffle=on ./...

check: ## the whole gate
	.ci/run

FUZZTIME ?= 60s
fuzz: ## every fuzz target for FUZZTIME each
	@set -e; for p in $$(go list ./...); do for f in $$(go test -list '^Fuzz' $$p | grep '^Fuzz' || true); do \
		echo "== $$p $$f"; go test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) $$p; done; done
