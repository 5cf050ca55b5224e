#!/usr/bin/env bash
# Slurm's Epilog: takes back what prolog.sh has noted of the job. It looks at all files, since the epilog of a job that lost its
# devices does not list them, and ends with 0 whatever happens: an epilog that fails drains the node.
set -uo pipefail

directory=${ACCEL_EXPORTER_JOBS:-/run/accel-exporter/jobs}
job=${SLURM_JOB_ID:-}
[ -n "$job" ] && [ -d "$directory" ] || exit 0

say() {
  logger --tag accel-exporter-epilog -- "$1" 2>/dev/null || true
}

exec 9>"$directory/.lock" || { say "cannot write to $directory"; exit 0; }
flock --wait 5 9 || { say "$directory is locked"; exit 0; }

umask 022
for file in "$directory"/[0-9]*; do
  grep --quiet --line-regexp --fixed-strings -- "$job" "$file" 2>/dev/null || continue
  if ! grep --invert-match --line-regexp --fixed-strings -- "$job" "$file" >"$directory/.new"; then
    rm -f "$file" "$directory/.new" || say "cannot remove $file"
  elif ! mv "$directory/.new" "$file"; then
    say "cannot write $file"
  fi
done
exit 0
