#!/usr/bin/env bash
# Resolves the lock files anew from pyproject.toml, for every Python and platform at once. What is pinned stays pinned;
# `make lock ARGS=--upgrade` moves everything. The files name packages and hashes, never the place they came from.
set -euo pipefail
cd "$(dirname "$0")/.."

PYTHON=${PYTHON:-python3}
[ -x .venv-lock/bin/uv ] || { "$PYTHON" -m venv .venv-lock && .venv-lock/bin/python -m pip install --disable-pip-version-check --quiet uv; }

resolve() {
  .venv-lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
    --no-emit-index-url --no-emit-find-links "$@"
}

resolve pyproject.toml --extra all --output-file requirements.lock "$@"
resolve pyproject.toml --extra dev --constraints requirements.lock --output-file requirements-dev.lock "$@"
"$PYTHON" -c 'import tomllib; print("\n".join(tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"]))' |
  resolve - --constraints requirements-dev.lock --output-file requirements-build.lock "$@"
"$PYTHON" -c 'import tomllib; print("\n".join(tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["sbom"]))' |
  resolve - --constraints requirements-dev.lock --output-file requirements-sbom.lock "$@"
