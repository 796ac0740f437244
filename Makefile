# Everything runs in a virtual environment of this checkout, made when it is first needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
COMPAT := $(VENV)/.compat
FUZZ := $(VENV)/.fuzz
JUPYTER := $(VENV)/.jupyter
PYTEST_ARGS ?=
# Each of the many programs that are started here would compile the engine anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-browser test-interrupts test-slurm test-ssh test-pbs test-sge test-jobs test-kubernetes check format bench sim sim-long fuzz soak kills mutants compat compat-all clean

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16
	@echo "PYTHON=/path/to/python makes the environment from another Python (3.11 or newer)."

demo: $(READY) ## run unchanged dask code on dask's threads and on Scaler
	@$(BIN)/python examples/stdlib_analysis.py

test: $(READY) ## run the tests; PYTEST_ARGS adds arguments
	$(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

test-browser: $(JUPYTER) ## install Chromium (Debian, as root) if it is missing, and run the tests in it, those behind Jupyter too
	@command -v chromium chromedriver >/dev/null || apt-get install -y --no-install-recommends chromium chromium-driver
	$(BIN)/python -m pytest -rs $(PYTEST_ARGS) tests/process/test_browser.py
	$(BIN)/python -m pytest -m heavy -rs $(PYTEST_ARGS) tests/jupyter

test-interrupts: $(READY) ## press Ctrl-C in every program in every state, and have a signal at every point of a call (a minute)
	$(BIN)/python -m pytest -n 3 -m heavy $(PYTEST_ARGS) tests/process/test_interrupts.py tests/api/test_signal_handlers.py

test-ssh: $(READY) ## install OpenSSH's server (Debian, as root) if it is missing, and try hosts by ssh: 20 of them, each with an sshd
	@test -x /usr/sbin/sshd || apt-get install -y --no-install-recommends openssh-server
	$(BIN)/python -m pytest -m heavy -rs $(PYTEST_ARGS) tests/ssh

test-pbs: $(READY) ## the same with PBS's commands, those of slurm-wlm-torque, over a Slurm on this machine
	@command -v qsub slurmctld munged >/dev/null || apt-get install -y --no-install-recommends slurmctld slurmd slurm-client munge slurm-wlm-torque
	$(BIN)/python -m pytest -m heavy -rs $(PYTEST_ARGS) tests/slurm/test_pbs.py

test-sge: $(READY) ## fetch Grid Engine (Debian) without installing it, and run hosts from it on this machine (root)
	$(BIN)/python tests/sge/unpacked.py
	$(BIN)/python -m pytest -m heavy -s $(PYTEST_ARGS) tests/sge

test-slurm: $(READY) ## install Slurm (Debian, as root) if it is missing, and run hosts from it (minutes)
	@command -v sbatch munged >/dev/null && test -x /usr/sbin/slurmctld -a -x /usr/sbin/slurmd \
	    || apt-get install -y --no-install-recommends slurmctld slurmd slurm-client munge
	$(BIN)/python -m pytest -m heavy -s $(PYTEST_ARGS) tests/slurm

test-jobs: $(READY) ## kill client, scheduler and agents ten times under a durable job of a million rows (root on Linux; minutes)
	$(BIN)/python -m pytest -m heavy -s $(PYTEST_ARGS) tests/process/test_jobs_lose_all.py

test-kubernetes: $(READY) ## build Kubernetes 1.20.2 from Debian's source (once, 20 minutes), and run pods from it (Debian, as root)
	$(BIN)/python tests/kubernetes/install.py
	$(BIN)/python -m pytest -m heavy -s $(PYTEST_ARGS) tests/kubernetes

check: $(READY) ## lint, formatting, types, the import contract, and pages made from the code
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PYTHONPATH=.ci $(BIN)/lint-imports --config setup.cfg
	$(BIN)/python -m pytest -q -p no:cacheprovider tests/unit/test_documents.py

format: $(READY) ## rewrite the code as `make check` wants it
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY) ## compare with other engines on this machine
	$(BIN)/python -m bench

sim: $(READY) ## run the simulator over many seeds (an hour)
	$(BIN)/python -m pytest -n 2 -m heavy --timeout 1800 $(PYTEST_ARGS) tests/sim tests/properties tests/unit
	$(BIN)/python -m pytest -n 2 --timeout 1800 --hypothesis-profile many $(PYTEST_ARGS) tests/properties

sim-long: $(READY) ## run the simulator over SEEDS= fresh seeds of all mixes, then HOURS= of 100 hosts
	$(BIN)/python tests/sim/long.py $(if $(SEEDS),--seeds $(SEEDS)) $(if $(HOURS),--hours $(HOURS))

soak: $(READY) ## kill, stop, cut and fill real processes under load for HOURS= (root on Linux)
	$(BIN)/python tests/soak/run.py $(if $(HOURS),--hours $(HOURS))

kills: $(READY) ## kill the scheduler KILLS= times under load while all else lives (twenty minutes)
	$(BIN)/python tests/soak/kills.py $(if $(KILLS),--kills $(KILLS))

fuzz: $(FUZZ) ## feed decoder, sessions and cores with bytes that reach new code; RUNS=, TARGET=
	$(BIN)/python tests/fuzz/run.py $(if $(RUNS),--runs $(RUNS)) $(if $(TARGET),--target $(TARGET))

mutants: $(READY) ## plant faults in the code one at a time: does a test notice each? (an hour)
	$(BIN)/python tests/mutants/run.py

compat: $(COMPAT) ## other people's tests with Scaler under them: what fits in 15 minutes
	$(BIN)/python -m compat_tests

compat-all: $(COMPAT) ## all of them, beside other engines (hours)
	$(BIN)/python -m compat_tests --all

clean: ## remove the environment and everything that was made
	rm -rf $(VENV) .venv-compat build dist *.egg-info .coverage* htmlcov .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	    echo "make: Scaler needs Python 3.11 or newer, and '$(PYTHON)' is $$($(PYTHON) -V 2>&1 || true)." >&2; \
	    echo "make: name another one: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@test ! -L $(VENV) || { \
	    echo "make: $(VENV) is a link, and making it anew would empty what it leads to: $$(readlink $(VENV))." >&2; \
	    echo "make: run \`make\` there, or remove the link and have an environment here." >&2; exit 1; }
	@echo "making the environment $(VENV) with $$($(PYTHON) -V) (once; a minute or two) ..."
	@$(PYTHON) -m venv --clear $(VENV)
	@PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test,bench]'
	@touch $@

$(COMPAT): $(READY)
	@PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[compat]'
	@touch $@

$(JUPYTER): $(READY)
	@PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[jupyter]'
	@touch $@

$(FUZZ): $(READY)
	@PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[fuzz]'
	@touch $@
