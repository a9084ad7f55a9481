"""docs/measured.md, of which each measurement writes its own section."""

from __future__ import annotations

import re
from pathlib import Path

HEAD = "# Measured\n"


def write_section(path: Path, title: str, text: str) -> None:
    """Put `## title` with `text` in the page, in the place of what stood under that title, else at the end."""
    page = path.read_text() if path.exists() else HEAD
    section = f"## {title}\n\n{text.strip()}\n"
    found = re.search(rf"^## {re.escape(title)}\n.*?(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    if found:
        rest = page[found.end() :]
        page = page[: found.start()] + section + ("\n" + rest if rest else "")
    else:
        page = page.rstrip() + "\n\n" + section
    path.write_text(page)
