"""Errors by layer: cuts of a model, local and cumulative errors, the smallest failing part."""
