"""Batches ahead of the consumer: slots, and the queue that the engine fills."""
