"""Keys of operators and accounts in a PKCS#11 token: a hardware security module, a smart card, a TPM.

`pkcs11.json` in the keystore's folder names the module and the token. A key that lies in the token has a file in the keystore
as every other key, which holds a mark instead of a seed. In the token a key's label is its public key. The library
`python-pkcs11` speaks to the token; it is imported on first use.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
from msgspec import Struct

from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.private_files import read_text, remove, write_private
from eyot_wire.quoting import printable
from eyot_wire.trust import nkey

if TYPE_CHECKING:
    from collections.abc import Iterator

FILE: Final = "pkcs11.json"
VARIABLE: Final = "EYOT_TRUST_PIN_FILE"
#: The content of a key's file in the keystore.
MARK: Final = "eyot-pkcs11-1"
#: Roles of keys that are made in the token: operators and accounts sign, and nobody else needs their seeds.
ROLES: Final = frozenset("OA")
#: CKA_EC_PARAMS of Ed25519: its name as PKCS#11 3.0 has it, and its object identifier, which some modules want.
_CURVES: Final = (b"\x13\x0cedwards25519", b"\x06\x03\x2b\x65\x70")
_KEY_BYTES: Final = 32
_PROBE: Final = b"eyot: does this token sign with this key?"


class TokenFile(Struct, kw_only=True):
    """The content of `pkcs11.json`."""

    #: path of the module
    module: str
    #: label of the token
    token: str
    #: new keys are made in the token; False: the token only holds the keys that it has
    makes_keys: bool = True


class KeyToken:
    """The token while a command runs. All methods raise Failure."""

    def __init__(self, where: TokenFile) -> None:
        self._where = where
        self._session: Any = None

    def close(self) -> None:
        """Log out."""
        if self._session is not None:
            with contextlib.suppress(Exception):
                self._session.close()
            self._session = None

    def make(self, role: str) -> str:
        """Make a key pair in the token; return its public key. The private key cannot leave the token."""
        from pkcs11 import Attribute, KeyType, Mechanism

        with self._told("makes no Ed25519 key"):
            session = self._open()
            hidden = {Attribute.SENSITIVE: True, Attribute.EXTRACTABLE: False, Attribute.PRIVATE: True}
            public, private = _with_any_curve(
                lambda curve: session.create_domain_parameters(
                    KeyType.EC_EDWARDS, {Attribute.EC_PARAMS: curve}, local=True
                ).generate_keypair(
                    mechanism=Mechanism.EC_EDWARDS_KEY_PAIR_GEN, store=True, label="eyot", private_template=hidden
                )
            )
            name = nkey.encode_public(role, bytes(public[Attribute.EC_POINT])[-_KEY_BYTES:])
            private[Attribute.LABEL] = name
            private[Attribute.ID] = name.encode()
            public.destroy()  # it is the private key's label
        self._check(name)
        return name

    def take(self, public: str, seed: str) -> None:
        """Put a key into the token, from which it cannot be read again."""
        from pkcs11 import Attribute, KeyType, ObjectClass

        if self.holds(public):
            return
        with self._told("takes no Ed25519 key"):
            session = self._open()
            _with_any_curve(
                lambda curve: session.create_object(
                    {
                        Attribute.CLASS: ObjectClass.PRIVATE_KEY,
                        Attribute.KEY_TYPE: KeyType.EC_EDWARDS,
                        Attribute.EC_PARAMS: curve,
                        Attribute.VALUE: nkey.raw_seed(seed),
                        Attribute.SIGN: True,
                        Attribute.TOKEN: True,
                        Attribute.PRIVATE: True,
                        Attribute.SENSITIVE: True,
                        Attribute.EXTRACTABLE: False,
                        Attribute.LABEL: public,
                        Attribute.ID: public.encode(),
                    }
                )
            )
        self._check(public)

    def holds(self, public: str) -> bool:
        """Return whether the token has the private key."""
        return self._key(public) is not None

    def sign(self, public: str, data: bytes) -> bytes:
        """Return the signature of `data`, 64 raw bytes."""
        from pkcs11 import Mechanism

        key = self._key(public)
        if key is None:
            raise Failure(f"the token {printable(self._where.token)} does not hold {public}: is it the right one?")
        with self._told("does not sign"):
            return bytes(key.sign(data, mechanism=Mechanism.EDDSA))

    def remove(self, public: str) -> None:
        """Destroy a key."""
        key = self._key(public)
        if key is not None:
            with self._told("does not remove the key"):
                key.destroy()

    def open(self) -> None:
        """Log in: the module is there, the token is, and the PIN is right."""
        with self._told("cannot be used"):
            self._open()

    def _check(self, public: str) -> None:
        """Check that the token signs with a key; one that does not is destroyed again."""
        if not nkey.verify(public, _PROBE, self.sign(public, _PROBE)):
            self.remove(public)
            raise Failure("the token's signatures are not Ed25519: it cannot hold these keys")

    def _key(self, public: str) -> Any:
        from pkcs11 import Attribute, ObjectClass

        with self._told("does not list its keys"):
            query = {Attribute.CLASS: ObjectClass.PRIVATE_KEY, Attribute.LABEL: public}
            return next(iter(list(self._open().get_objects(query))), None)

    def _open(self) -> Any:
        if self._session is None:
            import pkcs11

            token = pkcs11.lib(self._where.module).get_token(token_label=self._where.token)
            self._session = token.open(rw=True, user_pin=_pin(self._where.token))
        return self._session

    @contextlib.contextmanager
    def _told(self, what: str) -> Iterator[None]:
        """Turn the library's errors into one line."""
        try:
            from pkcs11.exceptions import PKCS11Error
        except ImportError:
            raise Failure("keys in a token need the Python package python-pkcs11: pip install 'eyot[pkcs11]'") from None
        try:
            yield
        except (PKCS11Error, RuntimeError, OSError) as error:
            said = str(error) or _words(type(error).__name__)
            raise Failure(f"the token {printable(self._where.token)} {what}: {printable(said)}") from error


def open_token(root: Path) -> KeyToken:
    """Return the token of a keystore. Raises Failure."""
    found = read_file(root)
    if found is None:
        raise Failure(f"{root / FILE} is missing: it names the token; `eyot trust keystore pkcs11` writes it")
    return KeyToken(found)


def read_file(root: Path) -> TokenFile | None:
    """Return which token a keystore uses, None without one. Raises Failure."""
    path = root / FILE
    if not path.exists():
        return None
    try:
        return msgspec.json.decode(read_text(path), type=TokenFile)
    except msgspec.DecodeError as error:
        raise Failure(f"{path}: {error}: restore the file from a backup") from error


def write_file(root: Path, where: TokenFile | None) -> None:
    """Write or remove the file that names the token. Raises Failure."""
    if where is None:
        remove(root / FILE)
    else:
        write_private(root / FILE, msgspec.json.format(msgspec.json.encode(where)))


def is_in_token(text: str) -> bool:
    """Return whether a key's file says that the key lies in the token."""
    return text.strip() == MARK


def _with_any_curve(make: Any) -> Any:
    """Make a key by the curve's name, or by its identifier where the module wants that."""
    from pkcs11.exceptions import AttributeValueInvalid, DomainParamsInvalid, MechanismParamInvalid

    try:
        return make(_CURVES[0])
    except (AttributeValueInvalid, DomainParamsInvalid, MechanismParamInvalid):
        return make(_CURVES[1])


def _pin(token: str) -> str:
    """Return the PIN: from the file that EYOT_TRUST_PIN_FILE names, else from the terminal. Raises Failure."""
    named = os.environ.get(VARIABLE)
    if named:
        return read_text(Path(named)).partition("\n")[0]
    if not sys.stdin.isatty():
        raise Failure(f"the token wants its PIN: name a file with it in {VARIABLE}, or use a terminal")
    return str(click.prompt(f"PIN of the token {printable(token)}", hide_input=True, err=True))


def _words(name: str) -> str:
    """Return an exception's name as words: `PinIncorrect` is `pin incorrect`."""
    return "".join(f" {char.lower()}" if char.isupper() else char for char in name).strip()
