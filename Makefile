.PHONY: test check

test: ## all tests, with the race detector
	go test -race -shuffle=on ./...

check: ## the whole gate
	.ci/run
