"""Models compiled ahead of time: a file with graph, plans, kernels and weights.

`build` plans and compiles, for a device that `profile` may describe. `saved` defines the content of
the file, `codec` and `container` its format. `restore` loads the plans into a session's caches.
"""
