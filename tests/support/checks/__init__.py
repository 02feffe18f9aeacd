"""Checks of results, plans and traces, written apart from what made them."""
