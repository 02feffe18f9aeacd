"""Models compiled ahead of time: a file with graph, plans, kernels and weights, and its way back.

`build` plans and compiles, for a device that `profile` may describe; `saved` says what is kept,
`codec` and `container` how; `restore` makes a session's parts of it again.
"""
