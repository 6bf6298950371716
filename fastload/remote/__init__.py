"""Data that are not on the disk: locations, stores, and what users say about them."""
