"""LMDB's pages, read without LMDB: whether they are whole, what is in them, and mending what can be mended."""
