"""A TPU host at its real boundaries: a PCI bus and processes as files, libtpu's metric service as a real gRPC server,
and the page of GKE's tpu-device-plugin.

``host.py`` writes the files, ``service.py`` serves gRPC by collectors/tpu/runtime_metrics.proto as the real compiler
and runtime understand it, ``page.py`` writes the plugin's text. All follow the plain data that a test gives them.
"""
