"""Times attention methods against each other on one GPU, each checked against a reference before it is timed."""
