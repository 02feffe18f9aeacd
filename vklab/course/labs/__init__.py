"""Measurements, models and wrappers that one lab alone uses."""
