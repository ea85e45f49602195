# All that a newcomer or CI ever calls. `make test` alone sets everything up.
PYTHON ?= python3
BIN    := .venv/bin
STAMP  := .venv/.installed

.PHONY: setup test test-browser test-slurm check format bench docs clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; set PYTHON=…" >&2; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	@touch $@

# Two workers with one thread each: most tests are too small for more.
test: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile $(ARGS)

# The page in a real Chromium: apt-get install chromium chromium-driver
test-browser: setup
	$(BIN)/python -m pytest -m browser tests/browser $(ARGS)

# A real one-node SLURM: apt-get install slurm-wlm munge, as root
test-slurm: setup
	COLLAPSELAB_SLURM=1 $(BIN)/python -m pytest tests/suite/test_slurm.py $(ARGS)

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python docs/generate.py --check

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# make bench            full sizes, a few minutes
# make bench ARGS=--quick   small sizes, under a minute
bench: setup
	$(BIN)/python -m benchmarks $(ARGS)

docs: setup
	$(BIN)/python docs/generate.py

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis
