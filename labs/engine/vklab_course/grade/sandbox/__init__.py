"""Sandbox for code of strangers: its command line, its limits, and a probe of what it does."""
