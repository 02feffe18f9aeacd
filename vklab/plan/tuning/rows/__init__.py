"""Rules of tuning for kernels of rows and elements, and for products of one row in turn."""
