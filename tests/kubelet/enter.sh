#!/usr/bin/env bash
# Runs a command in mount, network and process namespaces of its own, in which a kubelet can start: nothing outside is
# reached, and nothing of the host changes but a branch of control groups and a mount point, removed at the end.
# What the command started ends with it. Usage: enter.sh COMMAND ARGUMENT…
set -euo pipefail

die() {
  printf '%s\n' "$@" >&2
  exit 1
}

# Kubelet 1.20 has the places of its plugins and logs in its code.
kubelet_root=/var/lib/kubelet
groups=/sys/fs/cgroup
branch=accel-exporter-test-$$
made=

outside() {
  local program
  [ "$(id -u)" = 0 ] || die "a kubelet needs root: run make test-kubelet as root, in a machine or container that may make namespaces"
  for program in unshare ip mount umount; do
    command -v "$program" >/dev/null || die "no $program: on Debian, as root: apt-get install util-linux mount iproute2"
  done
  [ ! -S "$kubelet_root/pod-resources/kubelet.sock" ] || die "this machine runs a kubelet: use one that does not"
  [ -d "$kubelet_root" ] || { mkdir "$kubelet_root" && made=1; }
  trap leave EXIT
  # Heeded when the command has ended.
  trap 'exit 143' HUP TERM
  make_branch
  KUBELET_CGROUP=/$branch unshare --mount --net --pid --fork --kill-child --mount-proc --propagation private \
    "$0" --inside "$@"
}

# Version 1 has a hierarchy for each controller, version 2 has one.
hierarchies() {
  if [ -e "$groups/cgroup.controllers" ]; then
    echo "$groups"
  else
    find "$groups" -mindepth 1 -maxdepth 1 -type d
  fi
}

make_branch() {
  local place
  for place in $(hierarchies); do
    mkdir "$place/$branch" || die "no control group can be made in $place: in a container, it takes a writable $groups"
  done
}

leave() {
  # What was killed with its namespace may take a moment to be gone.
  remove 2>/dev/null || { sleep 1 && remove; }
}

remove() {
  local place
  for place in $(hierarchies); do
    [ ! -d "$place/$branch" ] || find "$place/$branch" -depth -type d -exec rmdir {} + || return
  done
  [ -z "$made" ] || rmdir "$kubelet_root"
}

# The kubelet sets these where they differ: it finds what it wants, in files that are nobody's.
keep_settings() {
  local setting name file
  for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
    kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
    name=${setting%=*} file=/run/settings/${setting%=*}
    [ -e "/proc/sys/$name" ] || continue
    mkdir -p "${file%/*}"
    echo "${setting#*=}" >"$file"
    mount --bind "$file" "/proc/sys/$name"
  done
}

inside() {
  local place
  for place in /run /var/log "$kubelet_root"; do
    mount -t tmpfs tmpfs "$place"
  done
  keep_settings
  # Pods' volumes are mounted by the kubelet and seen by the runtime.
  mount --make-rshared /
  ip link set lo up
  # This shell stays, for it reaps what nobody else does.
  "$@"
}

if [ "${1:-}" = --inside ]; then
  shift
  inside "$@"
else
  [ $# -gt 0 ] || die "usage: enter.sh COMMAND ARGUMENT…"
  outside "$@"
fi
