"""What delivers batches: the engine, DALI, torch's workers, Python callables, with or without a device."""
