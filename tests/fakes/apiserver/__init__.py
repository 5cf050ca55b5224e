"""A Kubernetes API server, as far as lists, watches and what goes wrong with them."""
