"""Benchmark models, and measurements of them on vklab and on other runtimes."""
