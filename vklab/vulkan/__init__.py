"""Vulkan's objects, one file each: no tensors and no graphs.

Start reading at `api` (the bindings), then `instance`, `physical_device`, `device`, `memory`,
`descriptors`, `pipeline`, `command`, `sync` and `query`. Visited by labs 02, 03, 04, 05 and 06.
"""

__all__: list[str] = []
