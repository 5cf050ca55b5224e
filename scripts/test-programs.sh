#!/usr/bin/env bash
# Installs the programs that the tests use and that are no Python packages, where they are missing and we may:
# a C compiler (fake vendor libraries are built with it), Prometheus (it scrapes the agent in the end-to-end tests),
# Alertmanager (it holds back alerts by the example) and Chromium (it shows the status page); the last two are optional where the
# distribution has none.
# Where we may not, it says what to do, and those tests are skipped. REQUIRE_TEST_PROGRAMS=1 makes that an error.
set -euo pipefail

has_compiler() {
  command -v gcc >/dev/null && printf '#include <stdio.h>\nint main(void) { return 0; }\n' | gcc -x c -o /dev/null - 2>/dev/null
}

has_prometheus() {
  command -v prometheus >/dev/null && command -v promtool >/dev/null
}

# Debian splits this from Python; without it scripts/venv.sh can do nothing.
has_venv() {
  ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || python3 -c 'import ensurepip, venv' 2>/dev/null
}

failed=0

cannot() {
  echo "Not installed: $1 ($2). The tests that need it are skipped. To run them, as root: apt-get install $1" >&2
  failed=1
}

install() {
  local reason=''
  if ! command -v apt-get >/dev/null; then
    reason='this system has no apt-get; the names are those of Debian'
  elif [ "$(id -u)" = 0 ]; then
    as_root=(env)
  elif sudo -n true 2>/dev/null; then
    as_root=(sudo -n env)
  else
    reason='that takes root, or sudo without a password'
  fi
  if [ -n "$reason" ]; then
    cannot "$*" "$reason"
    return
  fi
  echo "Installing for the tests, from the distribution's packages: $*"
  if [ -z "${updated:-}" ]; then
    "${as_root[@]}" apt-get update -qq </dev/null || echo "apt-get update failed; trying with the old lists" >&2
    updated=1
  fi
  "${as_root[@]}" DEBIAN_FRONTEND=noninteractive apt-get install --yes -qq --no-install-recommends "$@" </dev/null >/dev/null ||
    cannot "$*" 'apt-get says above why'
}

# Of what apt does not offer nothing can be asked.
install_if_offered() {
  local before=$failed
  install "$1"
  command -v apt-cache >/dev/null && apt-cache show "$1" >/dev/null 2>&1 || failed=$before
}

# The package starts a server; the tests start their own.
stop_service() {
  if [ -d /run/systemd/system ]; then
    "${as_root[@]}" systemctl disable --now --quiet "$1.service" || true
  elif command -v service >/dev/null; then
    "${as_root[@]}" service "$1" stop >/dev/null 2>&1 || true
  fi
}

as_root=()
has_venv || install python3-venv
has_compiler || install gcc libc6-dev
if ! has_prometheus; then
  install prometheus
  has_prometheus && stop_service prometheus
fi
if ! command -v prometheus-alertmanager >/dev/null; then
  install_if_offered prometheus-alertmanager
  command -v prometheus-alertmanager >/dev/null && stop_service prometheus-alertmanager
fi
command -v chromium >/dev/null || install_if_offered chromium
[ "$failed" = 0 ] || [ -z "${REQUIRE_TEST_PROGRAMS:-}" ]
