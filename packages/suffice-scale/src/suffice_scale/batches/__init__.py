"""The batch interfaces of providers: requests in files, which are answered within a day at a lower price."""

from suffice_scale.batches.queue import BatchQueue

__all__ = ["BatchQueue"]
