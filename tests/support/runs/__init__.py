"""Processes, servers and long runs: children, damaged models, times, sizes of tests."""
