"""Rules of the source text and the packaging, and the pages of docs/ that are generated."""
