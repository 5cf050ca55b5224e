"""Measures what the agent costs, beside others on the same devices in the same run: ``python -m benchmarks``."""
