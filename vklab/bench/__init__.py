"""Benchmark models, the other runtimes they are run on, and how runs are measured."""
