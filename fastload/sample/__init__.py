"""The parts of a sample: its schema, the values of its fields, and their layout in a batch."""
