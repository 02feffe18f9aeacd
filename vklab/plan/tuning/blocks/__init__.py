"""Rules of tuning for weights in blocks, and for convolutions of int8 in words."""
