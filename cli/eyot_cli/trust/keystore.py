"""nsc's keystore: one file per seed, `keys/O|A|U|X/XX/PUBLIC.nk`, and credentials in `creds/OPERATOR/ACCOUNT/USER.creds`."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.private_files import check_name, make_folder, read_text, remove, write_private
from eyot_cli.trust import key_cipher, key_token
from eyot_cli.trust.key_cipher import KeyCipher
from eyot_cli.trust.key_token import KeyToken
from eyot_wire.trust import nkey
from eyot_wire.trust.creds import format_creds

ROLES: Final = {"O": "operator", "A": "account", "U": "user", "X": "curve", "N": "server", "C": "cluster"}
SUFFIX: Final = ".nk"
_IGNORED: Final = b"# ignore all nk files\n**/*.nk\n\n# ignore all creds files\n**/*.creds\n"


class KeyPair:
    """A key pair with its seed, or one whose private key lies in a token. repr() leaves the seed out."""

    def __init__(self, seed: str) -> None:
        self._seed = seed.strip()
        self.role, self.public = _public_of(self._seed)
        self._signer: nkey.KeySigner | None = nkey.Signer(self._seed) if self.role != "X" else None

    @classmethod
    def in_token(cls, public: str, token: KeyToken) -> KeyPair:
        """Return the pair of a key that lies in a token."""
        pair = cls.__new__(cls)
        pair._seed, pair.role, pair.public = "", public[0], public
        pair._signer = TokenSigner(public, token)
        return pair

    @property
    def has_seed(self) -> bool:
        """Whether the seed is here: a token does not give it away."""
        return bool(self._seed)

    @property
    def seed(self) -> str:
        """The seed. Raises Failure for a key in a token."""
        if not self._seed:
            raise Failure(f"{self.public} lies in a PKCS#11 token, which does not give its seed away")
        return self._seed

    @property
    def signer(self) -> nkey.KeySigner:
        """Raises Failure for a curve key, which cannot sign."""
        if self._signer is None:
            raise Failure(f"{self.public} is a curve key, which cannot sign")
        return self._signer

    def __repr__(self) -> str:
        return f"KeyPair({self.public})"


class TokenSigner:
    """Signs with a key of a token. Raises Failure."""

    def __init__(self, public: str, token: KeyToken) -> None:
        self._public = public
        self._token = token

    @property
    def public_key(self) -> str:
        """Return the public key in text form."""
        return self._public

    def sign(self, data: bytes) -> bytes:
        """Return the signature of `data`, 64 raw bytes."""
        return self._token.sign(self._public, data)


class Keystore:
    """The folder with the seeds."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._cipher: KeyCipher | None = None
        self._token: KeyToken | None = None
        #: keys that were made in the token, and that the keystore does not have yet
        self._unsaved: set[str] = set()

    @property
    def token(self) -> KeyToken:
        """The token of this keystore. Raises Failure without one."""
        if self._token is None:
            self._token = key_token.open_token(self.root)
        return self._token

    def close(self) -> None:
        """Leave the token; keys that were made there for nothing are destroyed."""
        if self._token is not None:
            for public in self._unsaved:
                with contextlib.suppress(Failure):
                    self._token.remove(public)
            self._token.close()
            self._token = None
        self._unsaved = set()

    def move_to_token(self) -> int:
        """Move the seeds of operators and accounts to the token; return how many. Raises Failure."""
        count = 0
        for public in self.all():
            if public[0] in key_token.ROLES and not key_token.is_in_token(read_text(self.path(public))):
                pair = self.find(public)
                assert pair is not None
                self.token.take(public, pair.seed)
                write_private(self.path(public), key_token.MARK.encode())
                count += 1
        return count

    @property
    def is_encrypted(self) -> bool:
        return (self.root / key_cipher.FILE).exists()

    def cipher(self) -> KeyCipher:
        """Return the cipher of an encrypted keystore; the passphrase is asked for once. Raises Failure."""
        if self._cipher is None:
            self._cipher = key_cipher.open_cipher(self.root, key_cipher.ask_passphrase)
        return self._cipher

    def encrypt(self) -> int:
        """Seal every seed that is not sealed yet; return how many. Raises Failure."""
        if not self.is_encrypted:
            make_folder(self.root)
            self._cipher = key_cipher.make_cipher(self.root, key_cipher.ask_passphrase(confirm=True))
        return self._rewrite(sealed=True)

    def decrypt(self) -> int:
        """Write every sealed seed in plain text again; return how many. Raises Failure."""
        if not self.is_encrypted:
            raise Failure(f"the keystore {self.root} is not encrypted")
        count = self._rewrite(sealed=False)
        remove(self.root / key_cipher.FILE)
        self._cipher = None
        return count

    def _rewrite(self, *, sealed: bool) -> int:
        cipher, count = self.cipher(), 0
        for public in self.all():
            path = self.path(public)
            text = read_text(path)
            if key_cipher.is_sealed(text) == sealed or key_token.is_in_token(text):
                continue
            pair = self.find(public)
            assert pair is not None
            write_private(path, (cipher.seal(pair.seed, public) if sealed else pair.seed).encode())
            count += 1
        return count

    def path(self, public: str) -> Path:
        """Return the file of a key, whether or not it exists."""
        return self.root / "keys" / public[0] / public[1:3] / f"{public}{SUFFIX}"

    def creds_path(self, operator: str, account: str, user: str) -> Path:
        folder = self.root / "creds" / check_name(operator, "an operator") / check_name(account, "an account")
        return folder / f"{check_name(user, 'a user')}.creds"

    def find(self, public: str) -> KeyPair | None:
        """Return a stored key pair, None without one. Raises Failure for a file that does not hold it."""
        path = self.path(public)
        try:
            text = path.read_text(errors="replace")
            if key_token.is_in_token(text):
                return KeyPair.in_token(public, self.token)
            pair = KeyPair(self.cipher().open(text, public) if key_cipher.is_sealed(text) else text)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Failure(f"{path}: {error.strerror}: run the command as the user who owns the keystore") from error
        except ValueError as error:
            raise Failure(f"{path}: {error}: restore the file from a backup") from error
        if pair.public != public:
            raise Failure(f"{path} holds the seed of {pair.public}: move it to {self.path(pair.public)}")
        return pair

    def holds(self, public: str) -> bool:
        return self.path(public).exists()

    def add(self, pair: KeyPair) -> Path:
        """Store a seed; a key that is there stays. Raises Failure."""
        path = self.path(pair.public)
        if self.find(pair.public) is not None:
            return path
        make_folder(self.root)
        ignored = self.root / ".gitignore"
        if not ignored.exists() and "NSC_NO_GIT_IGNORE" not in os.environ:
            write_private(ignored, _IGNORED)
        make_folder(self.root / "creds")
        write_private(path, self._content(pair).encode())
        self._unsaved.discard(pair.public)
        return path

    def _content(self, pair: KeyPair) -> str:
        """Return what a key's file holds; the key is in the token then, if that is its place."""
        if self._is_for_token(pair.role):
            if pair.has_seed:
                self.token.take(pair.public, pair.seed)
            return key_token.MARK
        return self.cipher().seal(pair.seed, pair.public) if self.is_encrypted else pair.seed

    def _is_for_token(self, role: str) -> bool:
        found = key_token.read_file(self.root) if role in key_token.ROLES else None
        return found is not None and found.makes_keys

    def make(self, role: str) -> KeyPair:
        """Make a key pair where its place is: in the token, or from the system's randomness. `add` keeps it."""
        if not self._is_for_token(role):
            return new_pair(role)
        public = self.token.make(role)
        self._unsaved.add(public)
        return KeyPair.in_token(public, self.token)

    def generate(self, role: str) -> KeyPair:
        """Make a key pair, and store it."""
        pair = self.make(role)
        self.add(pair)
        return pair

    def remove(self, public: str) -> bool:
        """Remove a key for good, in the token too; return whether it was there. Raises Failure."""
        if self.holds(public) and key_token.is_in_token(read_text(self.path(public))):
            self.token.remove(public)
        return remove(self.path(public))

    def write_creds(self, operator: str, account: str, user: str, token: str, pair: KeyPair) -> Path:
        """Write a user's credentials file."""
        path = self.creds_path(operator, account, user)
        write_private(path, format_creds(token, pair.seed).encode())
        return path

    def files(self) -> Iterator[Path]:
        """Yield the files that hold seeds: of keys, and credentials."""
        yield from sorted((self.root / "keys").glob(f"*/*/*{SUFFIX}"))
        yield from sorted((self.root / "creds").glob("*/*/*.creds"))

    def all(self) -> Iterator[str]:
        """Yield the public keys of all stored seeds, in order."""
        for path in sorted((self.root / "keys").glob(f"*/*/*{SUFFIX}")):
            public = path.name.removesuffix(SUFFIX)
            if public[:1] in ROLES and nkey.is_public(public, public[0]):
                yield public


def new_pair(role: str) -> KeyPair:
    """Make a key pair from the system's randomness."""
    return KeyPair(nkey.encode_seed(role, secrets.token_bytes(32)))


def _public_of(seed: str) -> tuple[str, str]:
    if seed.startswith("SX"):
        return "X", nkey.curve_public(seed)
    public = nkey.Signer(seed).public_key
    return public[0], public
