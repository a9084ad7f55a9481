"""One stored message as bytes, with its checksum, and sealed where the store is encrypted."""
