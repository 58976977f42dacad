# Everything one does with Tidemark. `make` lists it. ON=kind insists on Kubernetes, ON=local leaves it out.
SHELL := /bin/bash
.DEFAULT_GOAL := help
ON ?=
# The former name of PROFILE.
PROFILE ?=
# Set in many images: each of the many brokers and clients would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE
PYTHON := .venv/bin/python

.PHONY: help setup setup-audit setup-dev demo chaos test test-local check format cluster cluster-down images deploy sim sim-replay sim-mutants sim-exhaustive e2e-long bench bench-scale bench-topics bench-topics-on-kind bench-audit bench-chaos lock

help: ## this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: ## what `tidemark` and the demo need, in .venv, 250 MB (demo and test do it themselves)
	@hack/setup run

setup-audit: ## the same with Spark, for `tidemark audit`
	@hack/setup audit

setup-dev: ## the same with the tools of the tests
	@hack/setup dev

demo: setup ## leaders are killed and stopped under load, and nothing is lost (1 to 3 min)
	@hack/demo

chaos: setup ## faults under load, a verdict and a report (6 min), on the kind cluster if it is up: EXPERIMENT=file; SEED=n
	@EXPERIMENT="$(EXPERIMENT)" SEED="$(SEED)" hack/chaos

test: setup-dev ## all tests that this machine can run; ON=kind insists on Kubernetes (5 to 25 min)
	@hack/test

test-local: setup-dev ## all tests but those on Kubernetes (under 10 min on two processors)
	@ON=local hack/test

check: setup-dev ## format, lint, types, layers and tidiness, in seconds
	@hack/check

format: setup-dev ## let ruff format and fix what it can
	@.venv/bin/ruff check --fix --quiet . ; .venv/bin/ruff format .

cluster: ## a kind cluster `tidemark` of 1 + 3 nodes; its kubeconfig is build/kubeconfig
	@hack/kind/cluster up

cluster-down: ## remove that cluster, and the Docker daemon if we started it
	@hack/kind/cluster down

images: setup ## the images tidemark/operator:dev and tidemark/broker:dev
	@hack/images/build

deploy: setup ## images, CRDs and chart of this checkout onto the kind cluster
	@hack/deploy

sim: setup-dev ## the simulator, to the first violation: SEEDS=n from FIRST_SEED=k, JOBS=j; GO_ON=1; PROFILE=name or all
	@hack/sim runner --seeds $(or $(SEEDS),200) --first-seed $(or $(FIRST_SEED),1) $(if $(JOBS),--jobs $(JOBS)) \
		$(if $(GO_ON),--go-on) $(if $(PROFILE),--profile "$(PROFILE)")

sim-replay: setup-dev ## one run again: transcript and picture in build/sim; SEED=n, SHRINK=1 drops faults; PROFILE=name
	@hack/sim replay --seed "$(SEED)" $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SHRINK),--shrink) \
		$(if $(PROFILE),--profile "$(PROFILE)")

sim-mutants: setup-dev ## every guard removed once: is it noticed? Writes tests/mutation/mutants.md
	@hack/sim mutant_hunt

sim-exhaustive: setup-dev ## every interleaving of a small world, as large as 10 minutes hold
	@$(PYTHON) -m tests.model

e2e-long: setup-dev ## long rounds of kills, freezes, cuts, clients and hostile bytes with figures (about 110 min, more with kind)
	@hack/e2e-long

bench: setup-dev ## beside Apache Kafka on this machine, in turns: ROUNDS=n, else 3 (some 8 min each)
	@$(PYTHON) -m bench --rounds $(or $(ROUNDS),3)

bench-scale: setup-dev ## 3,000 partitions, 1,000 connections and 200 consumers: memory, processor, a kill
	@$(PYTHON) -m bench.scale

bench-topics: setup-dev ## many and large topics beside Kafka (about 60 min): ARGUMENTS="--parts requests,wide --systems tidemark"
	@$(PYTHON) -m bench.topics $(ARGUMENTS)

bench-topics-on-kind: setup-dev cluster ## 1,000 Topics, and 10,000 partitions, on the kind cluster (about 15 min)
	@$(PYTHON) -m bench.topics_on_kind $(ARGUMENTS)

bench-chaos: setup-dev ## a chaos experiment on Apache Kafka and on Tidemark (6 min): ARGUMENTS="-f FILE --kafka-set name=value"
	@$(PYTHON) -m bench.chaos_peers $(ARGUMENTS)

bench-audit: setup-dev ## the audit beside DuckDB, 10^6 to 10^8 samples: ROUNDS=n, ARGUMENTS="--samples 1000000 --huge"
	@$(PYTHON) -m bench.audit --rounds $(or $(ROUNDS),3) $(ARGUMENTS)

lock: setup-dev ## resolve the lock files anew from pyproject.toml
	.venv/bin/uv pip compile --quiet --upgrade --no-header --generate-hashes --no-emit-index-url \
		--no-emit-find-links pyproject.toml -o requirements.lock
	.venv/bin/uv pip compile --quiet --no-header --generate-hashes --no-emit-index-url \
		--no-emit-find-links --extra audit --constraint requirements.lock pyproject.toml -o requirements-audit.lock
	.venv/bin/uv pip compile --quiet --no-header --generate-hashes --no-emit-index-url \
		--no-emit-find-links --extra audit --extra dev --constraint requirements.lock pyproject.toml -o requirements-dev.lock

export ON
