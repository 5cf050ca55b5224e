#!/usr/bin/env bash
# A step of the Dockerfile: installs the agent from /wheels into /usr/local/lib/accel-exporter, with the extras that are named, compiles
# it and writes down what is in it (CycloneDX). The same wheels give the same bytes. Usage: scripts/image-venv.sh [EXTRA…]
set -euo pipefail

place=/usr/local/lib/accel-exporter
wheel=$(echo /wheels/accel_exporter-*.whl)
extras=$(IFS=, && echo "$*")

python -m venv --without-pip "$place"
# Wheels alone, whose hashes were checked when they were fetched: nothing comes from elsewhere any more.
python -m pip --python "$place/bin/python" install --quiet --no-index --find-links /wheels --no-compile "$wheel${extras:+[$extras]}"
# pip notes when and from which file it installed: other bytes at each build.
find "$place/lib" -name direct_url.json -delete
find "$place/lib" -name RECORD -exec sed -i '/direct_url\.json,/d' {} +
# Compiled here, the same at each build: the user of the image could not keep it, and each worker would compile anew.
PYTHONHASHSEED=0 "$place/bin/python" -m compileall -qq --invalidation-mode unchecked-hash "$place/lib"
/opt/tools/bin/cyclonedx-py environment --output-reproducible --output-format JSON --spec-version 1.6 \
  --output-file "$place/sbom.cdx.json" "$place/bin/python"
find "$place" -exec touch --no-dereference --date=@0 {} +
"$place/bin/accel-exporter" version
