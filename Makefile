# Everything a newcomer types. Only Python 3.11+, make and git are needed; the rest is installed into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PROTOS := $(sort $(wildcard proto/quorumlog/v1/*.proto))

# Compiled code is kept: without it, every node, worker of Spark and command of the tests compiles our sources anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup compile package wheels sbom changelog docs workflows demo console test test-fast test-kafka-clients test-logic test-processes test-alone test-compiled check proto format bench bench-peers chaos simulate mutants clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(VENV)/.requirements: requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "quorumlog needs Python 3.11 or newer; say which: make PYTHON=python3.11 ..." >&2; exit 1; }
	@test -d src/quorumlog/raft || { echo "src/quorumlog/raft is not a link to raft: git config core.symlinks true && git checkout -- src" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) (a few minutes the first time: PySpark is large)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	@touch $@

# The editable install is one .pth file that names src/.
$(STAMP): $(VENV)/.requirements pyproject.toml setup.py native/kafka_records.c
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

setup: $(STAMP)  ## make .venv and install everything, locked; report compiled modules
	@$(BIN)/python tools/compiled_state.py

# A tree beside the editable install: what is edited is seen there once it is compiled again.
COMPILED := build/compiled
compile: $(STAMP)  ## compile the core and the node's path; PYTHONPATH=build/compiled uses it
	@QUORUMLOG_COMPILE=1 $(BIN)/python setup.py -q build_ext --parallel 2 --build-lib $(COMPILED) --build-temp build/mypyc/objects

# Tools in environments of their own: nobody needs them to work here. Each is a dependency group of pyproject.toml.
build/%/venv/.installed: pyproject.toml
	@test -x build/$*/venv/bin/python || $(PYTHON) -m venv build/$*/venv
	@build/$*/venv/bin/python -m pip install --quiet --disable-pip-version-check "pip>=25.1"
	@build/$*/venv/bin/python -m pip install --quiet --disable-pip-version-check --group $*
	@touch $@

PACKAGES := build/packages/venv
package: $(STAMP) $(PACKAGES)/.installed  ## wheel and source distribution in dist/, built twice and compared
	@rm -rf dist
	@$(BIN)/python packaging/distributions.py --to dist
	@$(PACKAGES)/bin/python -m twine check --strict dist/*.whl dist/*.tar.gz
	@$(PACKAGES)/bin/check-wheel-contents dist/*.whl

# What an installation of the wheel brings, in the versions that are tested.
SBOM := build/sbom/environment
sbom: package  ## the software bill of materials of the wheel, in dist/
	@rm -rf $(SBOM)
	@$(PYTHON) -m venv --without-pip $(SBOM)
	@$(PACKAGES)/bin/python -m pip --python $(SBOM)/bin/python install --quiet --disable-pip-version-check --constraint requirements.lock dist/*.whl
	@$(PACKAGES)/bin/python packaging/sbom.py --environment $(SBOM)/bin/python --to dist/quorumlog.cdx.json

WHEELS := build/wheels/venv
wheels: $(WHEELS)/.installed  ## compiled wheels for this platform, in dist/compiled; on Linux with Docker or Podman
	@$(WHEELS)/bin/cibuildwheel --archs native --output-dir dist/compiled

CHANGES := build/changelog/venv
VERSION = $(shell $(BIN)/python -c 'import tomllib; print(tomllib.load(open("pyproject.toml", "rb"))["project"]["version"])')
changelog: $(STAMP) $(CHANGES)/.installed  ## collect changes/ into the section of the version in CHANGELOG.md
	@$(CHANGES)/bin/towncrier build --yes --version $(VERSION)

# actionlint is a Go module. tests/packaging finds it beside the other tools.
ACTIONLINT := github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
workflows: $(PACKAGES)/.installed  ## lint the workflows of .github/; needs Go
	@GOBIN=$(CURDIR)/$(PACKAGES)/bin go install $(ACTIONLINT)
	@$(PACKAGES)/bin/actionlint
	@$(PACKAGES)/bin/zizmor --offline --quiet .github

# The site, in an environment of its own. What draws its diagrams comes from npm, where there is one.
DOCS := build/docs
$(DOCS)/venv/.installed: packaging/site/requirements.lock
	@test -x $(DOCS)/venv/bin/python || $(PYTHON) -m venv $(DOCS)/venv
	@$(DOCS)/venv/bin/python -m pip install --quiet --disable-pip-version-check -r packaging/site/requirements.lock
	@touch $@

$(DOCS)/package/.unpacked: packaging/site/conf.py
	@mkdir -p $(DOCS)/package
	@cd $(DOCS) && { npm pack --silent mermaid@11.16.0 && tar -xzf mermaid-11.16.0.tgz package/dist/mermaid.min.js package/LICENSE; } > /dev/null 2>&1 || echo "npm does not bring mermaid: diagrams are shown as text"
	@touch $@

docs: $(DOCS)/venv/.installed $(DOCS)/package/.unpacked  ## the documentation as a site, in build/docs/site
	@$(DOCS)/venv/bin/sphinx-build --quiet --fail-on-warning --keep-going --builder html --conf-dir packaging/site --doctree-dir $(DOCS)/trees . $(DOCS)/site
	@echo "$(DOCS)/site/index.html"

demo: $(STAMP)  ## a three-node cluster that loses its leader and nothing else
	@$(BIN)/python examples/demo.py

# What starts no process of its own has all cores. What does mostly waits, for elections and for Java: so three workers
# keep two cores busy, and two of them have a session of Spark's (tests/conftest.py). What is timed or starved has the
# machine to itself.
# With PYTEST_ARGS one of them may find nothing to do: pytest calls that 5.
PROCESSES := cluster or chaos or spark
PYTEST := $(BIN)/python -m pytest
test: test-logic test-processes test-alone  ## all tests

test-fast: $(STAMP)  ## the inner loop: what needs no process and no seeds, in about two minutes
	@$(PYTEST) -q -n auto -m "not ($(PROCESSES) or thorough)" $(addprefix tests/,raft storage server sdk cli chaos console test_imports.py test_house.py) $(PYTEST_ARGS)

test-logic: $(STAMP)  ## what starts no process: the core, the node, the clients, the simulator
	@$(PYTEST) -n auto --dist worksteal -m "not ($(PROCESSES))" $(PYTEST_ARGS) || test $$? -eq 5

test-processes: $(STAMP)  ## what starts nodes, commands, Spark
	@$(PYTEST) -n 3 --dist loadfile --no-loadscope-reorder -m "($(PROCESSES)) and not alone" $(PYTEST_ARGS) || test $$? -eq 5

test-alone: $(STAMP)  ## what is timed or starved, one by one
	@$(PYTEST) -m alone $(PYTEST_ARGS) || test $$? -eq 5

# The same source, compiled, on a core of its own: rules of the log and of the node, storms and simulated clusters, and
# clusters of processes that lose their leaders. What cannot run so is marked "interpreted", and shown as skipped. A seed
# takes the same course compiled, in less time: these are the ones after those of test-logic. Clusters mostly wait, so
# they come first, and three workers keep two cores busy.
COMPILED_LOGIC := $(addprefix tests/,raft server/replicas server/hosting server/node server/partition server/transport \
	sdk/producer simulation/partition simulation/machinery/test_reduction.py test_compiled_sources.py)
COMPILED_CLUSTERS := tests/integration/test_leaders_return.py tests/integration/test_snapshot_catch_up.py \
	$(addprefix tests/sdk/against_nodes/test_against_cluster.py::test_,killing_the_leader_under_load_loses_and_doubles_nothing_and_keeps_order many_records_come_back_once_and_in_order the_asyncio_clients_do_the_same) \
	tests/local/test_local_cluster.py::test_a_killed_controller_is_replaced_and_comes_back_on_its_data
test-compiled: compile  ## the rules, simulated clusters and clusters of processes, on compiled modules
	@STORM_SEEDS=150:300 PYTHONPATH=$(COMPILED) $(PYTEST) -q -n 3 --dist loadfile --no-loadscope-reorder $(COMPILED_CLUSTERS) $(COMPILED_LOGIC) $(PYTEST_ARGS)
	@PYTHONPATH=$(COMPILED) $(BIN)/python -m quorumlog.simulator.simulate --start 41 --seeds 60
	@PYTHONPATH=$(COMPILED) $(BIN)/python -m quorumlog.simulator.simulate --clients --start 17 --seeds 24
	@PYTHONPATH=$(COMPILED) $(BIN)/python -m quorumlog.simulator.simulate --transactions --start 7 --seeds 24

# Kafka's clients in five languages, from their registries: it takes Go, Node.js, Java, Maven, kcat, and most of an hour.
test-kafka-clients: $(STAMP)  ## Kafka's clients, their own suites, Spark's Kafka format, Kafka Connect; KAFKA_CLIENTS=apache
	@KAFKA_CLIENTS=$(or $(KAFKA_CLIENTS),quorumlog) $(PYTEST) -s tests/kafka_clients $(PYTEST_ARGS)

check: $(STAMP)  ## lint, types, generated code fresh
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(MAKE) --no-print-directory proto OUT=build/proto
	@generated() { cd "$$1" && find quorumlog -name '*_pb2*' ! -name '*.pyc' | LC_ALL=C sort | xargs cksum; }; \
	[ "$$(generated proto)" = "$$(generated build/proto)" ] || { echo "generated code is stale: run make proto and commit" >&2; exit 1; }
	@$(BIN)/python tools/kafka_codec.py --check

OUT ?= proto
proto: $(STAMP)  ## generate the code of proto/
	@mkdir -p $(OUT)
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m grpc_tools.protoc -Iproto --python_out=$(OUT) --grpc_python_out=$(OUT) --mypy_out=quiet:$(OUT) --mypy_grpc_out=quiet:$(OUT) $(PROTOS)

format: $(STAMP)  ## format the code
	@$(BIN)/ruff check --fix --quiet . || true
	@$(BIN)/ruff format .

console: $(STAMP)  ## the web console, on a cluster to play with; CONSOLE_ARGS=--kafka
	@$(BIN)/quorumlog console --playground $(CONSOLE_ARGS)

bench: $(STAMP)  ## throughput and latency beside the bare path, same run
	@$(BIN)/python -m bench $(BENCH_ARGS)

# The clients of other log stores, in an environment of their own: nobody needs them to work here.
PEERS := build/peers/venv
$(PEERS)/.installed: pyproject.toml
	@test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	@$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check "pip>=25.1"
	@$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --group peers
	@touch $@

bench-peers: $(STAMP) $(PEERS)/.installed  ## beside Apache Kafka and other log stores, same run; BENCH_ARGS="--only kafka"
	@$(BIN)/python -m bench peers --fetch
	@$(BIN)/python -m bench peers $(BENCH_ARGS)

chaos: $(STAMP)  ## kill the leader ten times under load and check every acknowledgement
	@$(BIN)/quorumlog chaos run kill-leader --rounds 10

SEEDS ?= 200
simulate: $(STAMP)  ## run simulated clusters; SEEDS=n MINUTES=m START=n RECORD=file, or SEED=n to replay one
	@$(BIN)/python -m quorumlog.simulator.simulate $(if $(SEED),--seed $(SEED),--seeds $(SEEDS) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(START),--start $(START)) $(if $(RECORD),--record $(RECORD)))

mutants: $(STAMP)  ## plant faults into copies of the packages and show what notices each
	@$(BIN)/python -m quorumlog.simulator.mutate $(if $(ONLY),--only $(ONLY))

clean:  ## remove what was made
	rm -rf $(VENV) build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
