# `make demo` needs Python 3.11 or newer; `make test` also downloads PyTorch (CPU).
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
TORCH ?= torch==2.13.0
OUT ?= suffice-demo
CHECKED ?= build/results
PYTEST_ARGS ?=
# More than a machine of two cores can run at once: some wait for a disk or a server, and the last file of one is long.
WORKERS ?= 3
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
ROOM ?=
MUTANTS_ARGS ?=
MUTMUT ?= mutmut==3.8.1
CYCLONEDX ?= cyclonedx-bom==7.5.0
PYRIGHT ?= npx --yes pyright@1.1.414
CHROMIUM ?= $(or $(SUFFICE_CHROMIUM),$(shell command -v chromium || command -v chromium-browser))
# The main package and those beside it, as pip takes them: always together, since no index has these names.
PACKAGES := . $(addprefix ./packages/suffice-,reader retrieval gates scale server papers)
CORE := $(foreach name,audit baseline_selectors calibrate calibration cascade choice difficulty display \
	draft_selectors errors escalating_rules evidence expressions extensions fields groupings metrics_golden money own_rules policy position ranker rasc \
	recorded_signals replies logistic rules seen selectors semantic_scores semantic_signals session session_missing \
	session_state same_answers sealed_json signals_answers spellings signal_definitions signals_evidence signals_margins signals_steps signals_text signals_thinking checked start_round surface \
	uncertainty votes by_stop,$(wildcard tests/*/test_$(name).py tests/*/*/test_$(name).py))
SOURCES := pyproject.toml $(shell find src packages -type f -not -name '*.pyc' -not -path '*/node_modules/*')

# Without bytecode each run rewrites the assertions of all tests, and each process that a test starts compiles the package.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo check slow core coverage test test-browser test-frameworks test-crewai test-lowest test-cloud test-js stress mutants lint prove bench dist sbom docs site site-version results results-check dev clean

help:
	@echo "make demo     record, calibrate, replay and deploy TASR on real questions, offline"
	@echo "make check    run the laws and units: all tests but those that start a process, need torch or take long"
	@echo "make slow     measure which tests take long, for make check"
	@echo "make coverage run the tests of the numpy-only core, which must pass through every branch of it"
	@echo "make test     run all tests, those in a browser where a chromium is installed"
	@echo "make test-frameworks  run the adapters of agent frameworks with the frameworks; make test-crewai that of CrewAI"
	@echo "make test-js          check the types of the TypeScript package and run its own tests, with node and npm"
	@echo "make test-lowest      run the quick tests of the core on the oldest dependencies that are allowed"
	@echo "make test-cloud       run recordings at URLs against an S3 server"
	@echo "make stress   run all tests four times: other BLAS kernels, threads, orders and hashes, idle and busy machine"
	@echo "make mutants  change the core (or ROOM=rules alone) in small ways and count the changes that its tests notice"
	@echo "make lint     ruff, mypy, the import contracts, and pyright on a user's file (it needs npx)"
	@echo "make prove    check every claim about rules, sessions and scores, and print the table"
	@echo "make bench    run the benchmarks; one JSON line each"
	@echo "make dist     build every sdist and wheel into dist/, twice: byte for byte the same"
	@echo "make sbom     list all that a clean environment of every package holds, as CycloneDX in build/sbom.json"
	@echo "make docs     write the generated parts of the documentation again"
	@echo "make site     build the documentation as a site in build/site, without a network; broken links end it"
	@echo "make site-version  commit that site to the branch gh-pages, beside those of earlier versions"
	@echo "make results  run the demo on both data sets and write its tables into docs/results"
	@echo "make results-check  the same into a folder of its own, compared with docs/results figure by figure"
	@echo "make clean    remove the virtual environment and what tools left behind"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Suffice needs Python 3.11 or newer, this is " + sys.version.split()[0] + ": run  make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)

# The package and its embedded reader, which the demo asks, unless the environment already holds the editable one.
$(VENV)/.installed: $(SOURCES) | $(BIN)/python
	test -e $(VENV)/.dev || $(BIN)/python -m pip install --quiet --disable-pip-version-check . ./packages/suffice-reader
	touch $@

# PyTorch goes first and alone: pip may then take a CPU build, and nothing later asks for another one.
$(VENV)/.dev: pyproject.toml $(wildcard packages/*/pyproject.toml) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$(TORCH)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev,dense]" \
		-e ./packages/suffice-reader -e "./packages/suffice-retrieval[datasets,faiss,postgres,qdrant,lancedb,opensearch,elasticsearch]" \
		-e "./packages/suffice-gates[torch]" -e "./packages/suffice-scale[ray]" -e ./packages/suffice-server -e "./packages/suffice-papers[training]"
	touch $@

dev: $(VENV)/.dev

demo: $(VENV)/.installed
	$(BIN)/suffice demo --out $(OUT)

check: $(VENV)/.dev
	$(PYTEST) -m "not whole and not slow" $(PYTEST_ARGS)

slow: $(VENV)/.dev
	$(BIN)/python -m scripts.slow_tests $(PYTEST_ARGS)

core:
	@echo $(CORE)

# Measuring doubles the time of a test, so only those run under it that the core needs.
coverage: $(VENV)/.dev
	$(PYTEST) --cov --cov-report= $(PYTEST_ARGS) $(CORE)
	$(BIN)/coverage report --show-missing --skip-covered --fail-under=100

test: $(VENV)/.dev
	$(PYTEST) $(PYTEST_ARGS)
	@if [ -n "$(CHROMIUM)" ]; then $(MAKE) --no-print-directory test-browser; \
	else echo "the report was not tested in a browser: apt-get install chromium && make test-browser does that"; fi

test-browser: $(VENV)/.dev
	@test -n "$(CHROMIUM)" || { echo "no chromium on the PATH: apt-get install chromium, or name one in SUFFICE_CHROMIUM" >&2; exit 1; }
	SUFFICE_CHROMIUM="$(CHROMIUM)" $(BIN)/python -m pytest -p no:cacheprovider tests/browser

# Each environment is exactly what its file pins; CrewAI's pins contradict those of the others.
$(VENV)-%/.pinned: tests/frameworks/requirements/%.txt $(wildcard pyproject.toml packages/*/pyproject.toml)
	$(PYTHON) -m venv $(VENV)-$*
	$(VENV)-$*/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r $< $(addprefix -e ,$(PACKAGES))
	touch $@

FRAMEWORKS = -m pytest -c tests/frameworks/pytest.ini --rootdir tests/frameworks --confcutdir tests/frameworks

test-frameworks: $(VENV)-frameworks/.pinned
	PYTHONPATH=. $(VENV)-frameworks/bin/python $(FRAMEWORKS) $(PYTEST_ARGS) tests/frameworks --ignore tests/frameworks/test_crewai.py

test-crewai: $(VENV)-crewai/.pinned
	CREWAI_DISABLE_TELEMETRY=true PYTHONPATH=. $(VENV)-crewai/bin/python $(FRAMEWORKS) $(PYTEST_ARGS) tests/frameworks/test_crewai.py

# A server that speaks S3, and the driver of fsspec for it.
$(VENV)-cloud/.pinned: tests/cloud/requirements.txt $(wildcard pyproject.toml packages/*/pyproject.toml)
	$(PYTHON) -m venv $(VENV)-cloud
	$(VENV)-cloud/bin/python -m pip install --quiet --disable-pip-version-check -r $< -e ".[cloud,endpoint]" -e ./packages/suffice-reader -e ./packages/suffice-scale
	touch $@

# The oldest versions that pyproject.toml allows, which warn of what came later, and what the core's tests compare with; the other packages
# lend modules only.
$(VENV)-lowest/.pinned: $(wildcard pyproject.toml packages/*/pyproject.toml)
	$(PYTHON) -m venv $(VENV)-lowest
	$(VENV)-lowest/bin/python -m pip install --quiet --disable-pip-version-check $$($(PYTHON) scripts/lowest.py math endpoint) \
		pytest pytest-xdist hypothesis pandas scikit-learn onnxruntime tokenizers
	$(VENV)-lowest/bin/python -m pip install --quiet --disable-pip-version-check --no-deps $(addprefix -e ,$(PACKAGES))
	touch $@

test-lowest: $(VENV)-lowest/.pinned
	$(VENV)-lowest/bin/python -m pytest -p no:cacheprovider -n 2 --dist loadfile -W default::DeprecationWarning -m "not whole and not slow" $(PYTEST_ARGS) $(CORE)

test-cloud: $(VENV)-cloud/.pinned
	PYTHONPATH=. $(VENV)-cloud/bin/python -m pytest -c tests/cloud/pytest.ini --rootdir tests/cloud --confcutdir tests/cloud $(PYTEST_ARGS) tests/cloud

# The law that ties it to this library is in `make test`, which needs node alone.
test-js:
	cd packages/suffice-js && npm ci --no-audit --no-fund && npm run build && npm run check && npm test && npm pack --dry-run

mutants: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$(MUTMUT)"
	$(BIN)/python scripts/mutants.py $(ROOM) $(MUTANTS_ARGS)

stress: $(VENV)/.dev
	$(BIN)/python scripts/stress.py $(PYTEST_ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --config-file= --strict tests/typed
	$(PYRIGHT) --pythonpath $(BIN)/python
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/lint-imports

prove: $(VENV)/.dev
	$(BIN)/python -m proofs

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks

dist: $(VENV)/.dev
	$(BIN)/python scripts/dist.py dist

# Into an environment without pip, and the tool beside it, so that neither is listed; again by name, since a path of this machine is not.
sbom: dist
	rm -rf $(VENV)-sbom && $(PYTHON) -m venv --without-pip $(VENV)-sbom/listed && $(PYTHON) -m venv $(VENV)-sbom/tool
	$(VENV)-sbom/tool/bin/python -m pip install --quiet --disable-pip-version-check "$(CYCLONEDX)" "pip>=23"
	$(VENV)-sbom/tool/bin/pip --python $(VENV)-sbom/listed/bin/python install --quiet --disable-pip-version-check dist/*.whl
	$(VENV)-sbom/tool/bin/pip --python $(VENV)-sbom/listed/bin/python install --quiet --disable-pip-version-check --no-deps --no-index \
		--force-reinstall --find-links dist $(notdir $(PACKAGES:.=suffice))
	mkdir -p build
	$(VENV)-sbom/tool/bin/cyclonedx-py environment $(VENV)-sbom/listed/bin/python --pyproject pyproject.toml --output-reproducible -o build/sbom.json

docs: $(VENV)/.dev
	$(BIN)/python docs/build.py

site: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet

# One folder for each minor version, and `latest`: a page offers the others.  `git push origin gh-pages` publishes the branch.
site-version: VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
site-version: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 PATH="$(abspath $(BIN)):$$PATH" $(BIN)/mike -q deploy --update-aliases --title "$(VERSION)" "$(basename $(VERSION))" latest
	$(BIN)/mike -q set-default --allow-undefined latest

results: $(VENV)/.dev
	$(BIN)/python docs/build.py --results

results-check: $(VENV)/.dev
	$(BIN)/python docs/build.py --results --into $(CHECKED)
	$(BIN)/python scripts/compare_results.py docs/results $(CHECKED)

clean:
	rm -rf $(VENV) $(VENV)-frameworks $(VENV)-crewai $(VENV)-cloud $(VENV)-lowest $(VENV)-sbom packages/suffice-js/node_modules packages/suffice-js/types build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage .coverage.*
