"""Batches in the forms of users' code, made from delivered fields: ``DataLoader(collate=...)``."""
