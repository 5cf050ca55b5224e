"""Attribution on a real node: kubelet, API server, container runtime and pods; `make test-kubelet` runs it."""
