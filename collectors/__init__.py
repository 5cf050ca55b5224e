"""One folder a vendor; each can be read alone."""
