"""Assignments: what is released to a class, and what comes back, read as data."""
