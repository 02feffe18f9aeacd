"""Models compiled ahead of time: a file with graph, plans, kernels and weights, and its way back.

`container` is the format, `codec` turns objects into it, `saved` says what is in it, `restore`
makes a session's parts of it again, `build` makes the file.
"""
