#!/usr/bin/env bash
# Makes the programs of a small Kubernetes node and prints their folder; does nothing where they are there already.
# kubelet, kube-apiserver and kube-controller-manager 1.20 are built from the source package of Debian 12, with its Go;
# etcd, containerd, runc and busybox are unpacked from its packages. Nothing is installed. KUBELET_PROGRAMS names the
# folder (.make/kubelet). The first time takes minutes, 250 MB from the distribution and 2.5 GB of disk while it builds.
set -euo pipefail
cd "$(dirname "$0")/.."

place=${KUBELET_PROGRAMS:-.make/kubelet}
built=(kubelet kube-apiserver kube-controller-manager)
unpacked=(usr/bin/etcd usr/bin/containerd usr/bin/containerd-shim-runc-v2 usr/bin/ctr usr/bin/runc bin/busybox)
version=1.20.2

die() {
  printf '%s\n' "$@" >&2
  exit 1
}

complete() {
  local program
  for program in "${built[@]}" "${unpacked[@]##*/}"; do
    [ -x "$place/bin/$program" ] || return 1
  done
}

# The machine's own sources of packages, with source packages, beside the machine's own lists.
apt() {
  local name=$1
  shift
  "$name" -o Dir::Etc::SourceList="$work/apt/sources.list" -o Dir::Etc::SourceParts="$work/apt/parts" \
    -o Dir::State::Lists="$work/apt/lists" -o Dir::Cache="$work/apt/cache" -o APT::Sandbox::User=root "$@"
}

name_sources() {
  local file
  mkdir -p "$work/apt/parts" "$work/apt/lists/partial" "$work/apt/cache/archives/partial"
  : >"$work/apt/sources.list"
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
    [ -e "$file" ] && sed -n 's/^deb \(.*\)/deb \1\ndeb-src \1/p' "$file" >>"$work/apt/sources.list"
  done
  for file in /etc/apt/sources.list.d/*.sources; do
    [ -e "$file" ] && sed 's/^Types:.*/Types: deb deb-src/' "$file" >"$work/apt/parts/${file##*/}"
  done
  return 0
}

download() {
  local packages=(golang-1.19-go golang-1.19-src containerd runc busybox-static etcd-server) offered
  name_sources
  apt apt-get update -qq || die "apt-get update failed, and says above why"
  offered=$(apt apt-cache showsrc --only-source kubernetes 2>/dev/null | sed -n 's/^Version: //p' | grep -F "really$version-" || true)
  [ -n "$offered" ] || die "the sources of packages in /etc/apt offer no kubernetes $version: only Debian 12 (bookworm) has it." \
    "Run this on Debian 12, or put the programs (${built[*]} ${unpacked[*]##*/}) into $place/bin by hand."
  (cd "$work" && apt apt-get download -qq "${packages[@]}") || die "apt-get cannot download ${packages[*]}, and says above why"
  (cd "$work" && apt apt-get source -qq --download-only "kubernetes=${offered%%$'\n'*}") ||
    die "apt-get cannot download the source of kubernetes, and says above why"
}

unpack() {
  local package
  for package in "$work"/*.deb; do
    dpkg-deb --extract "$package" "$work/files"
  done
  mkdir -p "$work/go/src/k8s.io"
  dpkg-source --no-check --extract "$work"/kubernetes_*.dsc "$source" >/dev/null
}

go() {
  env GOROOT="$work/files/usr/lib/go-1.19" GOPATH="$work/go" GOCACHE="$work/cache" GO111MODULE=off GOPROXY=off GOFLAGS= \
    GOTOOLCHAIN=local CGO_ENABLED=0 nice "$work/files/usr/lib/go-1.19/bin/go" "$@"
}

# The source package is without the API's description, which the server does not start without.
describe() {
  local packages
  go build -o "$work/openapi-gen" k8s.io/kubernetes/vendor/k8s.io/kube-openapi/cmd/openapi-gen
  packages=$(grep --recursive --files-with-matches --include='*.go' '^// +k8s:openapi-gen=true' pkg staging/src/k8s.io |
    sed -e 's#/[^/]*$##' -e 's#^staging/src/#vendor/#' -e 's#^#k8s.io/kubernetes/#' | sort --unique | paste --serial --delimiters=,)
  env PATH="$work/files/usr/lib/go-1.19/bin:$PATH" GOROOT="$work/files/usr/lib/go-1.19" GOPATH="$work/go" GO111MODULE=off \
    nice "$work/openapi-gen" --logtostderr --input-dirs "$packages" --go-header-file /dev/null --output-base "$work/made" \
    --output-package k8s.io/kubernetes/pkg/generated/openapi --output-file-base zz_generated.openapi \
    --report-filename "$work/violations" >"$work/openapi.log" 2>&1 || die "$(tail -n 20 "$work/openapi.log")"
  cp "$work/made/k8s.io/kubernetes/pkg/generated/openapi/zz_generated.openapi.go" pkg/generated/openapi/
}

build() {
  local program package flags='-s -w'
  for package in component-base/version client-go/pkg/version; do
    package=k8s.io/kubernetes/vendor/k8s.io/$package
    flags+=" -X $package.gitVersion=v$version -X $package.gitMajor=1 -X $package.gitMinor=20"
  done
  for program in "${built[@]}"; do
    echo "Building $program" >&2
    go build -ldflags "$flags" -o "$work/bin/$program" "k8s.io/kubernetes/cmd/$program"
  done
}

if ! complete; then
  for needed in apt-get dpkg-source; do
    command -v "$needed" >/dev/null || die "no $needed: on Debian 12, as root: apt-get install dpkg-dev"
  done
  mkdir -p "$place"
  place=$(realpath "$place")
  work=$(mktemp --directory "$place/work.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  trap 'exit 143' HUP TERM
  source=$work/go/src/k8s.io/kubernetes
  mkdir "$work/bin"
  echo "Making a Kubernetes node's programs in $place, from the distribution's sources; that takes minutes" >&2
  download
  unpack
  (cd "$source" && describe && build)
  for program in "${unpacked[@]}"; do
    cp --dereference "$work/files/$program" "$work/bin/"
  done
  rm -rf "${place:?}/bin"
  mv "$work/bin" "$place/bin"
fi
realpath "$place"
