"""The fake neuron-ls: with --json-output or -j it prints ls.json beside it; without the file it finds no driver.

ls.json: {"text": …, "exit": code, "stderr": …, "sleep": seconds}.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

FOLDER = Path(sys.argv[0]).parent


def main() -> None:
    if sys.argv[1:] not in (["--json-output"], ["-j"]):
        sys.exit(f"unknown arguments {sys.argv[1:]}")
    with (FOLDER / "ls-starts").open("a") as file:
        file.write("x")
    if not (FOLDER / "ls.json").exists():
        sys.exit("FATA[0000] neuron driver is not loaded")
    found = json.loads((FOLDER / "ls.json").read_text())
    time.sleep(found.get("sleep", 0))
    sys.stderr.write(found.get("stderr", ""))
    sys.stdout.write(found["text"])
    sys.stdout.flush()
    sys.exit(found.get("exit", 0))


if __name__ == "__main__":
    main()
