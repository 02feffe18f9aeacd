"""Report of parity: one row for each backend, recorded results, texts and the HTML page."""
