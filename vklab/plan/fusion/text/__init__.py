"""Slang text of fused dispatches."""
