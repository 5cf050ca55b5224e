#!/usr/bin/env bash
# Makes the virtual environment fit for use; does nothing where it is already. Usage: scripts/venv.sh run|dev
#   run: this package, editable, with everything that a node can need
#   dev: the same from requirements-dev.lock, and the tools of tests and linters
# PYTHON chooses the interpreter; without it an environment that works is kept, whichever Python made it.
# VENV is the place (.venv).
set -euo pipefail
cd "$(dirname "$0")/.."

what=${1:?run or dev}
venv=${VENV:-.venv}

die() {
  printf '%s\n' "$@" >&2
  exit 1
}

new_enough() {
  command -v "$1" >/dev/null && "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
  local name
  if [ -n "${PYTHON:-}" ]; then
    new_enough "$PYTHON" || die "PYTHON=$PYTHON is not a Python 3.11 or newer that runs. Name another: make PYTHON=python3.12 …"
    echo "$PYTHON"
    return
  fi
  for name in python3 python3.13 python3.12 python3.11 python3.14 python; do
    if new_enough "$name"; then
      echo "$name"
      return
    fi
  done
  die "No Python 3.11 or newer was found on PATH. Install one, or name it: make PYTHON=/path/to/python3.12 …"
}

origin() {
  "$1" -c 'import sys; print(sys.version, sys.base_prefix)' 2>/dev/null
}

# An environment whose Python was removed or replaced, or that has no pip, is of no use.
works() {
  [ -x "$venv/bin/python" ] && new_enough "$venv/bin/python" && "$venv/bin/python" -c 'import pip' 2>/dev/null &&
    { [ -z "${PYTHON:-}" ] || [ "$(origin "$venv/bin/python")" = "$(origin "$PYTHON")" ]; }
}

create() {
  local python
  python=$(find_python)
  if [ -e "$venv" ]; then
    [ -e "$venv/pyvenv.cfg" ] || [ -z "$(ls -A "$venv")" ] ||
      die "$venv exists and is no virtual environment: move it away, or choose another place with VENV=…"
    echo "$venv does not work with $python: making it anew"
    rm -rf "$venv"
  fi
  "$python" -c 'import ensurepip, venv' 2>/dev/null ||
    die "$python cannot make virtual environments: its module venv or ensurepip is missing." \
      "On Debian and Ubuntu: apt-get install $("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"
  "$python" -m venv "$venv"
}

pip_install() {
  "$venv/bin/python" -m pip install --disable-pip-version-check --no-input --quiet --retries 2 "$@" ||
    die "" "Installing Python packages failed; pip says above why." \
      "Without a network: PIP_NO_INDEX=1 PIP_FIND_LINKS=/folder/of/wheels make …" \
      "With a mirror or a proxy: PIP_INDEX_URL=… or HTTPS_PROXY=… make …"
}

# What an installation depends on. Files' times say nothing after a clone or a copy.
state() {
  { pwd && origin "$venv/bin/python" && cat pyproject.toml exporter/__init__.py "requirements-dev.lock"; } | sha256sum
}

installed() {
  [ "$(cat "$venv/.installed-$1" 2>/dev/null)" = "$now" ]
}

[ -z "${PYTHON:-}" ] || find_python >/dev/null
works || create
now=$(state)
case $what in
  run)
    if ! installed run && ! installed dev; then
      echo "Installing accel-exporter into $venv"
      pip_install --editable '.[all]'
    fi
    ;;
  dev)
    if ! installed dev; then
      echo "Installing accel-exporter and its development tools into $venv"
      pip_install --require-hashes --requirement requirements-dev.lock
      pip_install --no-deps --no-build-isolation --editable .
    fi
    ;;
  *) die "usage: scripts/venv.sh run|dev" ;;
esac
printf '%s\n' "$now" >"$venv/.installed-$what"
