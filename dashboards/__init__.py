"""Grafana dashboards as code. They are files of the repository and no part of the installed package."""
