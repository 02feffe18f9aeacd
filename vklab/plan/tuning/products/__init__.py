"""Rules of tuning for products and convolutions."""
