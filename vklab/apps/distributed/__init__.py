"""One model on many workers: send batches to a Dask cluster, return the results in order.

Visited by lab 13.
"""

from vklab.apps.distributed.batches import map

__all__ = ["map"]
