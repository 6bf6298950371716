"""What a sample is made of: its schema, the values of its fields, and what a batch holds of them."""
