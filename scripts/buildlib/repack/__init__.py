"""Makes conda packages from what is already installed on this machine, one module per kind of source."""
