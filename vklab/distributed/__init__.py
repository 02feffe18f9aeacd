"""One model on many workers: batches go out to a Dask cluster, results come back in order."""

from vklab.distributed.batches import map

__all__ = ["map"]
