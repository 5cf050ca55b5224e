"""Who may come in, and how: the web configuration file (settings.py), the TLS context that follows from it (tls.py),
passwords (credentials.py), and the newest good state of all of them (keeper.py). What speaks TLS on a socket is in
exporter/http.
"""
