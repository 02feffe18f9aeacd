"""Graphs of the model families."""
