"""Helpers of the tests, by subject: `from support.graphs.small_models import relu`."""
