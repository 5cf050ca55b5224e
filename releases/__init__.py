"""Every release's metrics: the list of each beside this file, and the rules by which one may differ from the last."""
