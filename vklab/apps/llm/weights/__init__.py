"""Files of weights, read, written, converted and quantised."""
