"""Checks the installed package against float64: which cases there are, and running one safely in its own process."""
