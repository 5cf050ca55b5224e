"""NVIDIA GPUs through DCGM: ``libdcgm`` (ctypes), with a running nv-hostengine or an engine in this process."""
