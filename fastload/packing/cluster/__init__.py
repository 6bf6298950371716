"""One dataset packed by several processes on several machines: shares of one plan, published once."""
