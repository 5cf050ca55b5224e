"""The GPUs that the agent and its peers read: eight H100 of the tests' fake NVML, through each one's own binding."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.fakes.nvml import install, scenarios

GPUS: Final = 8
MODEL: Final = "NVIDIA H100 80GB HBM3"
FLAGS: Final = ("--set", "collectors.nvidia.enabled=true")
"""Of the agent: this host's bus shows no such device."""


def environment(folder: Path) -> Mapping[str, str]:
    """What a process needs to find them. Calls are not logged, for that would cost each caller. Raises RuntimeError."""
    installation = install(folder, scenarios.h100(GPUS))
    found = installation.environment()
    signs = folder / "bin"
    signs.mkdir()
    _list_gpus(signs / "nvidia-smi")
    return {
        "LD_LIBRARY_PATH": found["LD_LIBRARY_PATH"],
        "FAKE_NVML_SCENARIO": found["FAKE_NVML_SCENARIO"],
        "PATH": f"{signs}:{os.environ.get('PATH', '')}",
    }


def _list_gpus(program: Path) -> None:
    """all-smi opens NVML only where the vendor's program lists GPUs, or the bus does."""
    lines = [f"GPU {index}: {MODEL}" for index in range(GPUS)]
    program.write_text("#!/bin/sh\n" + "".join(f"echo '{line}'\n" for line in lines))
    program.chmod(0o755)
