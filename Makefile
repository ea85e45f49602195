# All that a newcomer or CI ever calls. `make test` alone sets everything up.
PYTHON ?= python3
BIN    := .venv/bin
STAMP  := .venv/.installed
AS_ROOT := $(shell test "$$(id -u)" = 0 || echo sudo)
INSTALL := $(AS_ROOT) sh -c 'apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "$$@"' install

.PHONY: setup demo test test-all test-effects test-browser test-slurm test-ray test-notebooks test-lowest test-newest check format bench docs \
	results notebooks release clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; set PYTHON=…" >&2; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	@touch $@

# Everything, small, without the network: trains, measures, analyses, and opens a page to look at.
demo: setup
	$(BIN)/collapselab demo $(ARGS)

# The tests of every package that take less than three seconds each: about four minutes on two cores.
# Two workers with one thread each: most tests are too small for more.
test: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not slow" $(ARGS)

# All of them, about a quarter of an hour
test-all: setup
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

# Suites on a real Ray cluster of two nodes
test-ray: setup
	$(BIN)/python -m pip install --quiet -e '.[ray]'
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m ray tests/suite/test_ray.py $(ARGS)

# The notebooks of the documentation, from the first cell to the last
test-notebooks: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m notebooks tests/test_notebooks.py $(ARGS)

# The same code with other versions of what it uses: the lowest that pyproject.toml allows, and the newest there are.
# torch is named apart, as its builds with CUDA are gigabytes: TORCH=torch is the newest, TORCH=torch==2.6.0 the lowest.
# A build for processors alone comes from the index that PIP_EXTRA_INDEX_URL names (pytorch.org, "Get started", lists them).
TORCH ?= $(shell grep '^torch==' constraints.txt)
OTHERS := tests/core/test_metrics.py tests/records tests/analysis tests/report tests/corpus tests/suite/test_recipe.py \
	tests/measurement/test_measure_pass.py tests/cli tests/test_examples.py tests/test_trackers.py

test-lowest:
	test -x .venv-lowest/bin/python || $(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet -c constraints-lowest.txt '$(TORCH)' '.[hub,gguf,slurm,tensorboard]' hypothesis pytest scikit-learn
	OMP_NUM_THREADS=1 .venv-lowest/bin/python -m pytest -p no:anyio $(OTHERS) $(ARGS)

test-newest:
	test -x .venv-newest/bin/python || $(PYTHON) -m venv .venv-newest
	.venv-newest/bin/python -m pip install --quiet --upgrade '$(TORCH)' \
		'.[hub,gguf,slurm,tensorboard,trackio,wandb]' hypothesis pytest scikit-learn
	OMP_NUM_THREADS=1 .venv-newest/bin/python -m pytest -p no:anyio $(OTHERS) tests/test_real_trackers.py $(ARGS)

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python tests/structure.py
	$(BIN)/mypy
	$(BIN)/python docs/generate.py --check

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# make bench                   full sizes, about ten minutes on two cores
# make bench ARGS=--quick      small sizes, under a minute; ARGS=--help for the rest
bench: setup
	$(BIN)/python -m benchmarks $(ARGS)

# The pages of docs/results from the tables in the repository; ARGS=--check changes nothing and says what is not current
results: setup
	$(BIN)/python docs/make_results.py $(ARGS)

# The documentation as a site, in site/, with the page of the demo where that was made
docs: setup
	$(BIN)/python docs/generate.py
	$(BIN)/zensical build --clean --strict
	test ! -f demo/report.html || cp demo/report.html site/demo.html

# The notebooks with what they show now
notebooks: setup
	$(BIN)/python docs/notebooks/run.py

# Wheel and sdist in dist/; the wheel is installed into an empty environment and does the demo's small version and a notebook
# there.
release:
	rm -rf dist build
	$(PYTHON) -m venv build/tools
	build/tools/bin/python -m pip install --quiet build twine
	build/tools/bin/python -m build --outdir dist .
	build/tools/bin/python -m twine check --strict dist/*
	$(PYTHON) -m venv build/empty
	build/empty/bin/python -m pip install --quiet -c constraints.txt dist/collapselab-*.whl
	cd build && empty/bin/collapselab suite run demo --scale small --out demo
	cd build && empty/bin/collapselab analyze demo --permutations 200 && empty/bin/collapselab report demo
	test -s build/demo/report.html
	cd build && empty/bin/python ../docs/notebooks/run.py --only-run measure

clean:
	rm -rf .venv .venv-lowest .venv-newest build dist site .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
