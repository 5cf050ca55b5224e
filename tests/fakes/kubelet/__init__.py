"""A kubelet, as far as PodResources goes: its messages, and a server that behaves and misbehaves as told."""
