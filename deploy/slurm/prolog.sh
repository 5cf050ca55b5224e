#!/usr/bin/env bash
# Slurm's Prolog: notes which job holds each accelerator, for attribution.slurm.job_directories (see accel-exporter.yaml).
# slurm.conf: Prolog=/etc/slurm/prolog.d/*  and  Epilog=/etc/slurm/epilog.d/*
#
# One file a device, named by its index, with one job a line: several jobs can share a device. It ends with 0 whatever
# happens, since a prolog that fails drains the node, and monitoring is no reason for that.
set -uo pipefail

directory=${ACCEL_EXPORTER_JOBS:-/run/accel-exporter/jobs}
job=${SLURM_JOB_ID:-}

say() {
  logger --tag accel-exporter-prolog -- "$1" 2>/dev/null || true
}

# The ids of the node's devices: global ones here, while inside of the job they begin at 0.
devices=${SLURM_JOB_GPUS:-${CUDA_VISIBLE_DEVICES:-${ROCR_VISIBLE_DEVICES:-}}}
case ${CUDA_VISIBLE_DEVICES:-} in
*MIG-*)
  # Slurm numbers the instances of a node through, which says nothing of their GPUs. The job's processes are seen all the same.
  say "job $job holds MIG instances: no files are written"
  exit 0
  ;;
esac
[ -n "$job" ] && [ -n "$devices" ] || exit 0

umask 022
mkdir -p "$directory" || { say "cannot make $directory"; exit 0; }
exec 9>"$directory/.lock" || { say "cannot write to $directory"; exit 0; }
flock --wait 5 9 || { say "$directory is locked"; exit 0; }

# 0,2-4 → 0 2 3 4
for part in ${devices//,/ }; do
  [[ $part =~ ^([0-9]{1,4})(-([0-9]{1,4}))?$ ]] || { say "job $job: the device $part is no number"; continue; }
  for ((device = 10#${BASH_REMATCH[1]}; device <= 10#${BASH_REMATCH[3]:-${BASH_REMATCH[1]}}; device++)); do
    file=$directory/$device
    # Replaced whole: a reader never sees half of it.
    others=$(grep --invert-match --line-regexp --fixed-strings -- "$job" "$file" 2>/dev/null)
    if ! printf '%s\n' ${others:+"$others"} "$job" >"$directory/.new" || ! mv "$directory/.new" "$file"; then
      say "cannot write $file"
    fi
  done
done
exit 0
