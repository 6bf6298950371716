"""``fastload recode``: a packed dataset's JPEGs as coefficient records and back, in place."""
