"""Runners of the benchmark: vklab and its peers, each in a child process of its own."""
