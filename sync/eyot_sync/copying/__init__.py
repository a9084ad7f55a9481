"""Copying a stream: what a mirror or source asks its origin, takes, and believes."""
