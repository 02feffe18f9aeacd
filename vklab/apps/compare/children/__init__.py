"""Runtimes in child processes: what a child is asked, and times taken in turn."""
