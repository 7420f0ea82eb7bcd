# `make` lists the targets.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:

VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.spark-ckpt-stamp
CLASSES := $(VENV)/spark-classes.jsa
MODULES := $(VENV)/.pyspark-compiled
# The Python that makes the virtual environment; without one given, the first on the PATH that is new enough.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.14; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
# More arguments for pytest, for example: make test ARGS='-k storage -x'
ARGS ?=
# Tests that run beside each other in `make test`; 0 for one after the other, which shows what they print.
JOBS ?= 2
SEED ?=
# Of `make campaign`, together 300 kills if nothing is asked for: kills of the whole plan; cases and long tests of this run at most; after so
# many minutes none is begun; PART=kills, PART=sinks or PART=tests; ONLY=text: cases of the sinks ('interval, driver')
# and long tests with that in their name.
KILLS ?=
CASES ?=
MINUTES ?=
PART ?=
ONLY ?=
# Of `make test-matrix`: one line of Spark.
LINE ?=

.PHONY: help
help: ## List the targets
	@echo "spark-ckpt: Flink's checkpoint mechanism for Spark Structured Streaming"
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)$$/  make \1|\2/' | awk -F'|' '{printf "%-18s %s\n", $$1, $$2}'

.PHONY: python-check
python-check:
	@if [ -z "$(PYTHON)" ]; then \
		echo "No Python 3.11 or newer was found, which PySpark 4.3 asks for: install it (Debian and Ubuntu: apt-get install python3 python3-venv) or name one: make PYTHON=/path/to/python3" >&2; exit 1; \
	elif ! $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
		echo "$(PYTHON) is not a Python 3.11 or newer, which PySpark 4.3 asks for: install one or name another: make PYTHON=/path/to/python3" >&2; exit 1; \
	elif ! $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null; then \
		echo "$(PYTHON) cannot make virtual environments: install its venv module (Debian and Ubuntu: apt-get install python3-venv)" >&2; exit 1; \
	fi

.PHONY: java-check
java-check: python-check
	@$(PYTHON) -m jvm_shim.build --check-java

# PySpark goes first and the build is not isolated: the JAR is compiled against the PySpark it will run with, which is fetched once.
$(STAMP): pyproject.toml setup.py | java-check
	@test -x $(PY) || { echo "making $(VENV) with $$($(PYTHON) --version)"; $(PYTHON) -m venv $(VENV); }
	@echo "installing PySpark 4.3, the package and its tests into $(VENV) (the first time: some 500 MB)"
	@$(PY) -m pip install --quiet --disable-pip-version-check 'setuptools>=77,<81' wheel 'pyspark>=4.3,<4.4'
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-build-isolation --editable '.[test,demo]'
	@touch $@

.PHONY: venv
venv: java-check $(STAMP) ## Make .venv with all that is needed (no network once it is up to date)

.PHONY: jar
jar: venv ## Compile the JAR for this PySpark with its own Scala compiler, if a source has changed
	@$(PY) -m jvm_shim.build

.PHONY: jars
jars: venv ## Compile the JARs for all lines of Spark (the first time: some 1.8 GB of PySparks into .sparks; then no network)
	@$(PY) -m jvm_shim.build --all

.PHONY: check
check: venv ## ruff and strict mypy: seconds, before a commit
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/mypy

.PHONY: browser
browser: venv
	@$(PY) -m tests.drivers.spark.chromium || test -z "$${CI:-}"

# Spark gives an interpreter ten seconds to start. Before any is: one that runs has the old file's table of contents.
$(MODULES): $(STAMP)
	@$(PY) -m tests.drivers.spark.compiled_pyspark
	@touch $@

# Spark's tests start hundreds of JVMs; without it they only take longer.
$(CLASSES): $(STAMP) | jar $(MODULES)
	@echo "making an archive of Spark's classes, once"
	@$(PY) -m tests.drivers.spark.class_archive || true

.PHONY: test
test: venv ## check, then all tests that need nothing but pip and Java
	@$(MAKE) --no-print-directory -j 2 check jar browser $(CLASSES)
	@$(PY) -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder --max-worker-restart 0 --durations=60 --durations-min=5 $(ARGS)

.PHONY: test-fast
test-fast: jar ## Only the tests that start no Spark
	@$(PY) -m pytest -m "not spark and not campaign" $(ARGS)

.PHONY: test-lowest
test-lowest: jar ## The same with the lowest version of every dependency that pyproject.toml allows, in an environment of its own
	@$(PY) tests/lowest.py $(VENV)/lowest
	@$(VENV)/lowest/bin/python -m pip list --disable-pip-version-check 2>/dev/null | grep -iE '^(boto3|botocore|click|javaproperties|msgspec|pyarrow|rich|rocksdict|xxhash) '
	@$(VENV)/lowest/bin/python -m pytest -n $(JOBS) -m "not spark and not campaign" $(ARGS)

.PHONY: screenshots
screenshots: jar browser ## The Checkpoints tab in a headless Chromium; renews docs/images
	@SPARK_CKPT_PICTURES=docs/images $(PY) -m pytest -m spark tests/spark/test_tab.py tests/spark/test_tab_interval.py $(ARGS)

.PHONY: docs
docs: venv ## The documents as a site in build/site, to read without a network
	@$(PY) -c 'import material' 2>/dev/null || $(PY) -m pip install --quiet --disable-pip-version-check --no-build-isolation --editable '.[docs]'
	@$(PY) -m documents
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --quiet --strict
	@echo "build/site/index.html (its search needs a server: $(PY) -m http.server --bind 127.0.0.1 --directory build/site)"

.PHONY: campaign
campaign: jar $(CLASSES) ## 300 kills, the sinks and the long tests, hours: goes on where it was (CASES=n, MINUTES=n: a part of it; docs/reliability.md)
	@$(PY) -m campaign run $(if $(SEED),--seed $(SEED)) $(if $(KILLS),--kills $(KILLS)) $(if $(CASES),--cases $(CASES)) \
		$(if $(MINUTES),--minutes $(MINUTES)) $(if $(PART),--part $(PART)) $(if $(ONLY),--only '$(ONLY)')

.PHONY: test-matrix
test-matrix: jar ## Some tests on every line of Spark, what has no result for this code yet; renews docs/compatibility.md (LINE=4.0: one; ONLY=text)
	@$(PY) -m campaign.lines run $(if $(LINE),--line $(LINE)) $(if $(ONLY),--only '$(ONLY)')

.PHONY: demo
demo: jar ## A year of flights through a query that is killed, loses its disk and goes on (SEED=n repeats a run)
	@$(PY) examples/demo.py $(if $(SEED),--seed $(SEED))

.PHONY: bench
bench: jar ## This project beside stock Spark, on a real S3 server 20 ms away: under 10 minutes (see docs/benchmarks.md)
	@$(PY) -m benchmarks run

.PHONY: bench-full
bench-full: jar ## The same with all workloads and more rounds, hours: goes on where it was (MINUTES=n: a part of it)
	@$(PY) -m benchmarks run --full $(if $(MINUTES),--minutes $(MINUTES))

.PHONY: wheel
wheel: jars ## Build dist/spark_ckpt-*.whl with the JARs for all lines of Spark inside
	@rm -rf build dist
	@SPARK_CKPT_LINES=all $(PY) -m pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps --wheel-dir dist .
	@ls dist/*.whl

.PHONY: release-check
release-check: wheel ## The wheel as users get it: twine, and beside each line's PySpark in an empty environment the demo (LINE=4.0: one)
	@$(PY) tests/release.py dist/*.whl $(LINE)

.PHONY: clean
clean: ## Remove what was built; .venv stays
	@rm -rf hs_err_pid*.log build dist .demo .campaign .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse metastore_db derby.log spark_ckpt/jars *.egg-info
	@find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
