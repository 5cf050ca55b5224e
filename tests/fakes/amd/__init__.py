"""A host with AMD GPUs: the files that amdgpu and KFD show, and a library for AMD's Python package (see README.md)."""

from __future__ import annotations

from tests.fakes.amd.tree import Board, Node, Process, Tree, build

__all__ = ["Board", "Node", "Process", "Tree", "build"]
