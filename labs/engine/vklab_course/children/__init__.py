"""Child processes with limits on time and output: kernels of students, and functions."""
