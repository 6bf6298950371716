"""The node cache: records kept once in memory for all processes of a node."""
