"""The status page, the JSON API and ``accel-exporter top``.

model.py says what the API answers. service.py makes the answers: from publications (samples.py, devices.py), from what
the collectors say (live.py), from the history and the configuration (settings.py). routes.py serves them and the page.
"""

from exporter.status.routes import routes
from exporter.status.service import Monitor

__all__ = ["Monitor", "routes"]
