"""Packing samples of any fields: an iterable of dicts, or a table, to a packed dataset."""
