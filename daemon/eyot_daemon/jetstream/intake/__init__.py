"""How messages get into a stream, one by one and in batches."""
