"""Regenerates `error_codes.py` from `errors.json`: `python -m eyot_wire.jetstream.generate_error_codes`."""

import json
from pathlib import Path

HEAD = '''"""JetStream\'s error codes by the names that nats-server gives them.

Generated from `errors.json` by `python -m eyot_wire.jetstream.generate_error_codes`; do not edit by hand.
"""

from typing import Final

'''


def generated() -> str:
    """Return the text of `error_codes.py`, in the order of the codes."""
    table = json.loads(Path(__file__).with_name("errors.json").read_text())
    rows = sorted(table, key=lambda entry: entry["error_code"])
    return HEAD + "".join(f"{entry['constant']}: Final = {entry['error_code']}\n" for entry in rows)


if __name__ == "__main__":
    Path(__file__).with_name("error_codes.py").write_text(generated())
