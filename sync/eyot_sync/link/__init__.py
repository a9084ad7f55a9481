"""Keeping a link up: where to dial, when, and what becomes of a link that is lost."""
