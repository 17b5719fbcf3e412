"""The batch interfaces of providers, which answer files of requests within a day at a lower price."""

from suffice_scale.batches.queue import BatchQueue

__all__ = ["BatchQueue"]
