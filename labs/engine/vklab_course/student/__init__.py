"""Copies of the labs in `work/`, their updates and what is handed in."""
