"""What operators can order, as the page sends it, and what can be said about an order without asking anybody."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from eyot_fleet.web.ask import REPORTS

if TYPE_CHECKING:
    from eyot_fleet.device_index import DeviceIndex

LABELS_MAX: Final = 32
LABEL_CHARS_MAX: Final = 64
DOCUMENT_BYTES_MAX: Final = 32 << 10
#: Devices of one bulk order; the page sends one order after the other.
BULK_MAX: Final = 16


class AskOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """Ask a device for a report."""

    device: str
    report: str


class ConnectOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """Have a device connect a link now."""

    device: str
    link: str


class LabelOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """Set a device's own labels, if they still have the revision which the operator saw."""

    device: str
    labels: list[str]
    revision: int


class RelabelOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """Add to a device's own labels, and remove from them."""

    device: str
    add: list[str]
    remove: list[str]


class ConfigureOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """Set a device's own settings, if they still have the revision which the operator saw."""

    device: str
    settings: dict[str, Any]
    revision: int


class GroupOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """Make, change or remove a group, if it still has the revision which the operator saw; 0: there was none."""

    group: str
    labels: list[str]
    priority: int
    settings: dict[str, Any]
    revision: int
    remove: bool = False


class RingOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """A ring of a rollout that is to be started."""

    group: str
    wait_s: float


class RolloutOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """Steer a rollout: `do` is start, halt, resume or back; `version` belongs to start and back, `rings` to start."""

    rollout: str
    do: str
    version: str = ""
    rings: list[RingOrder] = []
    reason: str = ""


class RevokeOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """Revoke a device; `sure` repeats its name."""

    device: str
    sure: str


class ForgetOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """Forget a device that is gone for good; `sure` repeats its name."""

    device: str
    sure: str
    reason: str


class WithdrawOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """Withdraw a one-time token."""

    token: str


class TokensOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """List the tokens that can still be used."""


class BulkOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """Give several devices the same order: `do` is ask, connect or relabel, and the other members are of that order."""

    devices: list[str]
    do: str
    report: str = ""
    add: list[str] = []
    remove: list[str] = []

    def orders(self) -> list[AskOrder | ConnectOrder | RelabelOrder]:
        """Return the order of each device. Raises BadOrder."""
        if not 1 <= len(self.devices) <= BULK_MAX or len(set(self.devices)) < len(self.devices):
            raise BadOrder(f"1 to {BULK_MAX} devices at a time, each once")
        if self.do == "ask":
            return [AskOrder(name, self.report) for name in self.devices]
        if self.do == "connect":
            return [ConnectOrder(name, "") for name in self.devices]
        if self.do == "relabel":
            return [RelabelOrder(name, self.add, self.remove) for name in self.devices]
        raise BadOrder("do: expected ask, connect or relabel")


class BadOrder(Exception):
    """An order that cannot be meant; the text says why."""


Order = (
    AskOrder
    | ConnectOrder
    | LabelOrder
    | RelabelOrder
    | ConfigureOrder
    | GroupOrder
    | RolloutOrder
    | RevokeOrder
    | ForgetOrder
    | WithdrawOrder
    | TokensOrder
)
FORMS: Final[dict[str, type[Order]]] = {
    "ask": AskOrder,
    "connect": ConnectOrder,
    "label": LabelOrder,
    "relabel": RelabelOrder,
    "configure": ConfigureOrder,
    "group": GroupOrder,
    "rollout": RolloutOrder,
    "revoke": RevokeOrder,
    "forget": ForgetOrder,
    "withdraw": WithdrawOrder,
    "tokens": TokensOrder,
}
#: Who may do the one may do the other.
PERMISSION: Final = {"tokens": "withdraw", "relabel": "label", "group": "configure"}


def check_order(order: Order, index: DeviceIndex) -> None:
    """Check what can be checked without asking anybody. Raises BadOrder."""
    device = getattr(order, "device", "")
    if device and index.get(device) is None:
        raise BadOrder("there is no such device")
    if isinstance(order, AskOrder) and order.report not in REPORTS:
        raise BadOrder(f"report: expected one of {', '.join(REPORTS)}")
    if isinstance(order, RevokeOrder) and order.sure != order.device:
        raise BadOrder("type the device's name to revoke it")
    if isinstance(order, ForgetOrder):
        if order.sure != order.device:
            raise BadOrder("type the device's name to forget it")
        if not order.reason.strip():
            raise BadOrder("say why the device is gone for good")
    if isinstance(order, LabelOrder | GroupOrder):
        _check_labels(order.labels)
    if isinstance(order, RelabelOrder):
        _check_labels(order.add + order.remove)
        if not order.add and not order.remove:
            raise BadOrder("name labels to add or to remove")
    if isinstance(order, RolloutOrder) and order.do not in ("start", "halt", "resume", "back"):
        raise BadOrder("do: expected start, halt, resume or back")
    if isinstance(order, ConfigureOrder | GroupOrder) and len(msgspec.json.encode(order.settings)) > DOCUMENT_BYTES_MAX:
        raise BadOrder(f"the settings are larger than {DOCUMENT_BYTES_MAX >> 10} KiB")


def _check_labels(labels: list[str]) -> None:
    if len(labels) > LABELS_MAX:
        raise BadOrder(f"a device has at most {LABELS_MAX} labels")
    for label in labels:
        if not 1 <= len(label) <= LABEL_CHARS_MAX or not label.isprintable() or any(map(str.isspace, label)):
            raise BadOrder(f"a label has 1 to {LABEL_CHARS_MAX} characters, without spaces")
        if label != label.lower():
            raise BadOrder("labels are in lower case")


def target_of(order: Order) -> str:
    """Return what an order is for, as the audit stream has it: a device, a group or a rollout."""
    return next((found for each in ("device", "group", "rollout") if (found := getattr(order, each, ""))), "")


def detail_of(order: Order) -> str:
    """Return what the audit stream says of an order besides its target."""
    match order:
        case AskOrder():
            return order.report
        case ConnectOrder():
            return order.link
        case LabelOrder():
            return " ".join(order.labels)
        case RelabelOrder():
            return " ".join([f"+{label}" for label in order.add] + [f"-{label}" for label in order.remove])
        case ConfigureOrder():
            return msgspec.json.encode(order.settings).decode()
        case GroupOrder():
            settings = msgspec.json.encode(order.settings).decode()
            return "removed" if order.remove else f"{' '.join(order.labels)} {settings}"
        case RolloutOrder():
            rings = " ".join(f"{ring.group}:{ring.wait_s:g}s" for ring in order.rings)
            return " ".join(each for each in (order.do, order.version, rings, order.reason) if each)
        case ForgetOrder():
            return order.reason
        case WithdrawOrder():
            return order.token
        case _:
            return ""
