# All that a newcomer or CI ever calls. `make test` alone sets everything up.
PYTHON ?= python3
BIN    := .venv/bin
STAMP  := .venv/.installed
AS_ROOT := $(shell test "$$(id -u)" = 0 || echo sudo)
INSTALL := $(AS_ROOT) sh -c 'apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "$$@"' install

.PHONY: setup demo test test-effects test-browser test-slurm check format bench docs results clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; set PYTHON=…" >&2; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	@touch $@

# Everything, small, without the network: trains, measures, analyses, and opens a page to look at.
demo: setup
	$(BIN)/collapselab demo $(ARGS)

# Two workers with one thread each: most tests are too small for more.
test: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

# Small trainings that show what every intervention moves, minutes
test-effects: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m effects tests/training $(ARGS)

# The page in a real Chromium, installed where it is missing (Debian, Ubuntu)
test-browser: setup
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null || $(INSTALL) chromium chromium-driver
	$(BIN)/python -m pytest -m browser tests/browser $(ARGS)

# Suites on a real one-node SLURM, installed where it is missing; as root
test-slurm: setup
	@command -v slurmctld >/dev/null && command -v munged >/dev/null || $(INSTALL) slurm-wlm munge
	COLLAPSELAB_SLURM=1 $(BIN)/python -m pytest -k on_a_real_slurm tests/suite/test_slurm.py $(ARGS)

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python docs/generate.py --check

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# make bench                   full sizes, under ten minutes on two cores
# make bench ARGS=--quick      small sizes, under a minute; ARGS=--help for the rest
bench: setup
	$(BIN)/python -m benchmarks $(ARGS)

# The pages of docs/results from the tables in the repository; ARGS=--check changes nothing and says what is not current
results: setup
	$(BIN)/python docs/make_results.py $(ARGS)

# The documentation as a site, in site/
docs: setup
	$(BIN)/python docs/generate.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --site-dir site

clean:
	rm -rf .venv site .mypy_cache .ruff_cache .pytest_cache .hypothesis
