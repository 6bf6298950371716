"""Batches as users' code expects them: what ``DataLoader(collate=...)`` makes of delivered fields."""
