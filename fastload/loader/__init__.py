"""The DataLoader, and what its arguments come to."""
