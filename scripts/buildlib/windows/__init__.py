"""Building for Windows from Linux, and running the result under Wine."""
