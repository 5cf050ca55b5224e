"""Push over OTLP: the same publications that /metrics serves, encoded, queued and sent to each receiver.

``service.py`` is the way in. Nothing here is imported where no receiver is configured.
"""
