"""A device's key that systemd-creds sealed: the units that need it get the seed from systemd, and no file holds it in plain text.

The credentials file then holds the token alone. systemd decrypts the seed into a folder that only the unit sees.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from eyot_wire.trust.nkey import NkeyError

#: Name of the credential in the units, embedded in the sealed file.
CREDENTIAL: Final = "eyot-device-seed"
_FOLDER: Final = "CREDENTIALS_DIRECTORY"


def sealed_seed() -> str:
    """Return the seed that systemd gave this unit. Raises NkeyError, whose text contains nothing of it."""
    folder = os.environ.get(_FOLDER)
    if not folder:
        raise NkeyError(f"the key is sealed, and only units with LoadCredentialEncrypted={CREDENTIAL} get it")
    try:
        return (Path(folder) / CREDENTIAL).read_text().strip()
    except OSError as error:
        raise NkeyError(
            f"the key is sealed, and systemd did not give {CREDENTIAL} to this unit: {error.strerror}"
        ) from None
    except UnicodeDecodeError:
        raise NkeyError(f"{CREDENTIAL} holds no seed") from None
