"""Rules of tuning for attention and its cache."""
