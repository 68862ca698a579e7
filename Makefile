# Muster's own commands. `make demo` and `make test` work on a fresh Debian-like machine: Python 3.11 or later with
# its venv module, git and make; no root.

SHELL := /bin/sh
.SHELLFLAGS := -euc
.ONESHELL:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

python := .venv/bin/python
packages := muster ctld noded dbd cli

# Stamps stand inside .venv, so they go when it goes. A checkout that was moved or copied has a .venv that points
# back to where it was made: the home stamp differs, and everything is installed again.
installed := .venv/.installed
installed_dev := .venv/.installed-dev
ifneq ($(shell cat .venv/.home 2>/dev/null),$(CURDIR))
moved := moved
endif

.PHONY: help setup setup-dev demo test check lint types imports stubs clean moved

help:
	@echo "make demo    set up .venv, start a cluster of four virtual nodes and run real jobs on it"
	echo "make test    set up .venv and run the test suite"
	echo "make check   ruff, mypy, import-linter, and that the generated wire code is up to date"
	echo "make setup   only make .venv with the commands in it (.venv/bin/sbatch ...)"
	echo "make clean   remove .venv and everything else that was generated"

# The bytecode is written here, so that a user who may not write to the checkout still starts commands fast.
# Unchanged files are only looked at.
setup: $(installed)
	@$(python) -m compileall -q -j 0 $(packages)

setup-dev: setup $(installed_dev)

moved:

# No setuptools may stay in the environment: its .pth file imports a hook at every start of Python, which costs
# 12 ms. `python3 -m venv` brings it before 3.12; a wheel that names it as a dependency brings it at any time.
define without_setuptools
if [ -d "$$($(python) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/setuptools" ]; then
	$(python) -m pip uninstall --quiet --yes setuptools
fi
rm -rf .venv/lib/python3*/site-packages/distutils-precedence.pth .venv/lib/python3*/site-packages/_distutils_hack
endef

# $(call install,WHAT): pip-installs what pyproject.toml names under WHAT, a Python expression over `project`.
define install
$(python) -c 'import tomllib; project = tomllib.load(open("pyproject.toml", "rb"))["project"]; print("\n".join($(1)))' > .venv/requirements.txt
$(python) -m pip install --disable-pip-version-check --no-input --prefer-binary -r .venv/requirements.txt
$(without_setuptools)
endef

# The first interpreter that is new enough and can make environments.
$(installed): pyproject.toml muster/launchers.py $(moved)
	@base=
	found=
	for candidate in $(PYTHON) python3 python3.13 python3.12 python3.11; do
		version=$$("$$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2]); sys.exit(sys.version_info < (3, 11))' 2>/dev/null) || continue
		found=$$version
		if "$$candidate" -c 'import ensurepip, venv' 2>/dev/null; then base=$$candidate; break; fi
	done
	if [ -z "$$found" ]; then
		echo "make: Muster needs Python 3.11 or later, and neither python3 nor python3.11, python3.12 or python3.13 on this PATH is that; install one (Debian: apt install python3 python3-venv) or name it: make PYTHON=/path/to/python3" >&2
		exit 1
	fi
	if [ -z "$$base" ]; then
		echo "make: Python $$found is here, but without the venv and ensurepip modules that make .venv; on Debian or Ubuntu: apt install python$$found-venv" >&2
		exit 1
	fi
	echo "==> .venv with $$($$base -c 'import sys; print("Python", sys.version.split()[0], "of", sys.executable)')"
	if [ -e .venv/.home ] && [ "$$(cat .venv/.home)" != "$(CURDIR)" ]; then rm -rf .venv; fi
	if ! $(python) -m pip --version >/dev/null 2>&1; then "$$base" -m venv .venv; fi
	echo "==> dependencies (from pyproject.toml)"
	$(call install,project["dependencies"])
	echo "==> commands"
	site=$$($(python) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
	echo "$(CURDIR)" > "$$site/muster.pth"
	$(python) -m muster.launchers .venv/bin
	echo "$(CURDIR)" > .venv/.home
	touch $@

$(installed_dev): $(installed)
	@echo "==> tools for tests and checks (from pyproject.toml)"
	$(call install,project["optional-dependencies"]["dev"])
	touch $@

demo: setup
	@$(python) -m cli.demo

# Each part runs even if one before it failed, so that one run tells everything; the exit code is honest.
# End-to-end tests run one at a time: they start whole clusters and measure deadlines.
test: setup-dev
	@failed=
	echo "==> unit and property tests"
	$(python) -m pytest -q -n 2 tests/unit tests/property || failed="$$failed unit/property"
	echo "==> simulated clusters"
	$(python) -m pytest -q -n 2 tests/sim || failed="$$failed sim"
	echo "==> real daemons"
	$(python) -m pytest -q tests/e2e || failed="$$failed e2e"
	if [ -n "$$failed" ]; then echo "make test: failed:$$failed" >&2; exit 1; fi
	echo "==> all tests passed"

check: lint types imports stubs
	@echo "==> all checks passed"

lint: setup-dev
	@echo "==> ruff"
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .

types: setup-dev
	@echo "==> mypy"
	.venv/bin/mypy .

imports: setup-dev
	@echo "==> import-linter"
	.venv/bin/lint-imports

stubs: setup-dev
	@echo "==> generated wire code"
	$(python) proto/generate.py --check

clean:
	@rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
