"""Messages of a .proto file, compiled when they are first needed: no generated code lies in the tree."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_tools import protoc  # type: ignore[import-untyped]


@functools.cache
def message(proto: Path, name: str) -> Any:
    """The class of a message, by its full name."""
    return message_factory.GetMessageClass(_pool(proto).FindMessageTypeByName(name))


@functools.cache
def _pool(proto: Path) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "set"
        code = protoc.main(["protoc", f"-I{proto.parent}", f"--descriptor_set_out={out}", str(proto)])
        assert code == 0, f"{proto} does not compile"
        found = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in found.file:
        pool.Add(file)
    return pool
