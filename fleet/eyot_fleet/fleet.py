"""The fleet in memory: what is heard, what is desired, and what has to be written. Pure: time comes as an argument.

`service.py` brings messages and takes what `dirty` holds. Several services beside one hub hear the same and decide the same;
the one that leads writes.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
from msgspec.structs import replace

from eyot_fleet.alerts import WARNING, AlertLimits, alerts_of, with_alert, without_alert
from eyot_fleet.desired import DeviceSettings, Group, SourceRule, document_of
from eyot_fleet.device_index import DEVICES_MAX, DeviceIndex
from eyot_fleet.device_record import Alert, ConfigRecord, DeviceRecord, UpgradeRecord
from eyot_fleet.history import DayHistory, HistoryPoint
from eyot_fleet.rollout import Rollout, release_for
from eyot_fleet.status_reader import StatusError, is_newer, made_at, name_in, read_status, updated
from eyot_wire.desired import OUTCOMES, REPORT_BYTES_MAX, ConfigReport, DesiredDocument
from eyot_wire.quoting import printable
from eyot_wire.trust.enrolment import is_device_name
from eyot_wire.untrusted import decode_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eyot_wire.trust.enrolment_record import EnrolledDevice

STATUS: Final = "status"
CONFIG: Final = "config"
T = TypeVar("T")
#: How long a forged message is told of, seconds.
FORGED_S: Final = 3600.0
#: One tick brings the alerts of this part of all devices up to date.
TICK_SHARE: Final = 6
#: Groups and rules that are kept.
GROUPS_MAX: Final = 1000
_TEXT_MAX: Final = 300


class Refusal(msgspec.Struct, frozen=True):
    """A message that was refused, for the audit. `name`: as in its subject."""

    name: str
    reason: str
    forged: bool


class Fleet:
    """All devices, and what is desired of them."""

    def __init__(self, prefix: str, limits: AlertLimits, devices_max: int = DEVICES_MAX) -> None:
        self.prefix = prefix
        self.limits = limits
        self.index = DeviceIndex(devices_max)
        self.groups: dict[str, Group] = {}
        self.settings: dict[str, DeviceSettings] = {}
        self.rules: dict[str, SourceRule] = {}
        self.rollouts: dict[str, Rollout] = {}
        #: messages by what became of them: `applied`, `late`, `repeated`, `unreadable`, `forged`, `no room`
        self.counts: Counter[str] = Counter()
        #: names of devices that changed in a way that is written at once, and of those that can wait
        self.urgent: set[str] = set()
        self.waiting: set[str] = set()
        self._histories: dict[str, DayHistory] = {}
        self.histories_changed: set[str] = set()
        self.enrolled: dict[str, EnrolledDevice] = {}
        self._forged_at: dict[str, float] = {}
        #: devices whose alerts the next ticks bring up to date
        self._due: list[str] = []
        #: the device that had a JetStream domain first
        self._domains: dict[str, str] = {}

    # -- what is heard ---------------------------------------------------------------------------------------------

    def hear_status(self, subject: str, payload: bytes, heard_at: float, *, live: bool) -> Refusal | None:
        """Take a status message; return why not. `live`: it was heard just now; others come from a stream."""
        try:
            name = name_in(subject, self.prefix, STATUS)
        except StatusError as error:
            self.counts["unreadable"] += 1
            return Refusal("", str(error), forged=False)
        try:
            status = read_status(name, payload)
        except StatusError as error:
            return self._refuse(name, error, heard_at)
        record = self.index.get(name) or self._new(name)
        if not is_newer(record, status, heard_at, live=live):
            same = status.boot == record.boot and status.number == record.number
            self.counts["repeated" if same else "late"] += 1
            self._note_history(
                name, made_at(status, heard_at, live=live), status.backlog, status.oldest_s, False, False
            )
            return None
        found = updated(record, status, heard_at, live=live)
        if self._put(self._with_twin(found, heard_at), heard_at) is None:
            self.counts["no room"] += 1
            return None
        self.counts["applied"] += 1
        at = made_at(status, heard_at, live=live)
        self._note_history(name, at, found.backlog, found.oldest_s, status.linked, status.synced)
        return None

    def _refuse(self, name: str, error: StatusError, now: float) -> Refusal:
        self.counts["forged" if error.forged else "unreadable"] += 1
        record = self.index.get(name)
        if error.forged and record is not None:
            self._forged_at[name] = now
            text = "somebody publishes another device's status on this one's subject"
            alert = Alert(
                kind="forged", severity=WARNING, text=text, remedy="check what its login may publish", since=now
            )
            self._put(replace(record, alerts=with_alert(record.alerts, alert)), now)
        return Refusal(name, str(error), forged=error.forged)

    def _with_twin(self, record: DeviceRecord, now: float) -> DeviceRecord:
        """Return the record with an alert if another device has its JetStream domain: the hub could not tell them apart."""
        other = self.owner_of_domain(record)
        if other is None:
            return replace(record, alerts=without_alert(record.alerts, "domain"))
        text = f"{other} has the JetStream domain {printable(record.domain)} already"
        alert = Alert(kind="domain", severity=WARNING, text=text, remedy="give each device its own domain", since=now)
        return replace(record, alerts=with_alert(record.alerts, alert))

    def owner_of_domain(self, record: DeviceRecord) -> str | None:
        """Return another device that has this one's domain: the device of that name, which owns it, or the first one that had it."""
        domain = record.domain
        if not domain or domain == record.name:
            return None
        holder = domain if self.index.get(domain) is not None else self._domains.get(domain)
        return None if holder == record.name else holder

    def note_link(self, name: str, up: bool, at: float) -> None:
        """Take an event of the hub: a device's link came up or went."""
        record = self.index.get(name)
        if record is None or record.linked is up:
            return
        self._put(replace(record, linked=up, linked_since=at), at)

    def take_report(self, subject: str, payload: bytes, now: float) -> tuple[str, ConfigReport]:
        """Return the device and its report of configuration, kept. Raises StatusError."""
        name = name_in(subject, self.prefix, CONFIG)
        try:
            if len(payload) > REPORT_BYTES_MAX:
                raise StatusError(f"a report of {len(payload):,} bytes")
            report = decode_json(payload, ConfigReport)
        except msgspec.DecodeError as error:
            self.counts["unreadable"] += 1
            raise StatusError(f"no report: {error}") from None
        if report.device != name:
            forged = StatusError(f"a report of {report.device[:_TEXT_MAX]!r} on the subject of {name}", forged=True)
            self._refuse(name, forged, now)
            raise forged
        if report.outcome not in OUTCOMES:
            raise StatusError("a report with an unknown outcome")
        record = self.index.get(name) or self._new(name)
        config = replace(
            record.config,
            reported=report.revision[:_TEXT_MAX],
            reported_at=now,
            outcome=report.outcome,
            error=report.error[:_TEXT_MAX],
        )
        self._put(replace(record, config=config, upgrade=_upgrade(record.upgrade, report, now)), now)
        return name, report

    # -- what is desired -------------------------------------------------------------------------------------------

    def set_desired(self, key: str, value: bytes | None, now: float) -> str | None:
        """Take a value of the bucket of desired configuration, None: removed. Return why it cannot be used."""
        kind, _, name = key.partition(".")
        try:
            if kind == "device" and is_device_name(name):
                if value is None and name in self.forgotten():
                    self.forget(name)
                _set(self.settings, name, None if value is None else decode_json(value, DeviceSettings))
                self._apply_desired([name], now)
            elif kind == "group":
                if value is not None and name not in self.groups and len(self.groups) >= GROUPS_MAX:
                    return f"{key}: more than {GROUPS_MAX} groups"
                _set(self.groups, name, None if value is None else decode_json(value, Group))
                self._apply_desired([record.name for record in self.index], now)
            elif kind == "sources":
                if value is not None and name not in self.rules and len(self.rules) >= GROUPS_MAX:
                    return f"{key}: more than {GROUPS_MAX} rules"
                _set(self.rules, name, None if value is None else decode_json(value, SourceRule))
            elif kind == "rollout":
                if value is not None and name not in self.rollouts and len(self.rollouts) >= GROUPS_MAX:
                    return f"{key}: more than {GROUPS_MAX} rollouts"
                _set(self.rollouts, name, None if value is None else decode_json(value, Rollout))
            else:
                return f"{printable(key)}: neither device, group, sources nor rollout"
        except msgspec.DecodeError as error:
            return f"{printable(key)}: {error}"
        return None

    def document(self, name: str) -> DesiredDocument:
        """Return what a device should apply."""
        record = self.index.get(name)
        labels = self._labels(name) if record is None else record.labels
        found = document_of(name, labels, self.groups, self.settings.get(name))
        return replace(found, release=release_for(labels, self.groups, self.rollouts))

    def enrol(self, devices: Mapping[str, EnrolledDevice], now: float) -> tuple[list[str], list[str]]:
        """Take all enrolment records; return names that came and names that went, which are revoked."""
        before = self.enrolled
        self.enrolled = dict(devices)
        changed = [name for name, device in devices.items() if before.get(name) != device]
        self._apply_desired(changed, now)
        came = []
        for name in changed:
            record = self.index.get(name)
            if record is None or record.revoked_at is not None or record.enrolled_at is None:
                came.append(name)
            self._put(
                replace(record or self._new(name), enrolled_at=float(devices[name].enrolled_at), revoked_at=None), now
            )
        return came, self._note_revoked(now)

    def _note_revoked(self, now: float) -> list[str]:
        """Note devices that were enrolled and have no record any more: they were revoked, maybe while this service was away."""
        gone = [
            record
            for record in self.index
            if record.enrolled_at is not None and record.revoked_at is None and record.name not in self.enrolled
        ]
        for record in gone:
            self._put(replace(record, revoked_at=now), now)
        return [record.name for record in gone]

    def _apply_desired(self, names: list[str], now: float) -> None:
        """Bring labels and desired revisions of known devices up to date."""
        for name in names:
            record = self.index.get(name)
            if record is not None:
                self._put(self._with_desired(record, now), now)

    def _with_desired(self, record: DeviceRecord, now: float) -> DeviceRecord:
        labels = self._labels(record.name)
        revision = document_of(record.name, labels, self.groups, self.settings.get(record.name)).revision
        config = record.config
        if revision != config.desired:
            config = replace(config, desired=revision, desired_at=now)
        return replace(record, labels=labels, config=config)

    def _labels(self, name: str) -> tuple[str, ...]:
        enrolled, own = self.enrolled.get(name), self.settings.get(name)
        found = {*(() if enrolled is None else enrolled.tags), *(() if own is None else own.labels)}
        return tuple(sorted(found))

    def _new(self, name: str) -> DeviceRecord:
        return self._with_desired(DeviceRecord(name=name, config=ConfigRecord()), 0.0)

    # -- time and storage ------------------------------------------------------------------------------------------

    def load(self, record: DeviceRecord, now: float) -> None:
        """Take a stored record, unless a newer one is here."""
        if self.index.get(record.name) is None:
            kept = self._put(self._with_desired(record, now), now)
            if kept == record:
                self.urgent.discard(record.name)

    def load_history(self, name: str, data: bytes) -> None:
        """Take a stored history, unless a newer one is here."""
        if name not in self._histories and self.index.get(name) is not None:
            found = DayHistory.decode(data)
            if found is not None:
                self._histories[name] = found

    def write_all(self) -> None:
        """Mark everything as to be written: what the hub had is gone."""
        self.urgent.update(record.name for record in self.index)
        self.histories_changed.update(self._histories)

    def history(self, name: str, now: float) -> list[HistoryPoint]:
        """Return a device's own day; [] for an unknown device."""
        found = self._histories.get(name)
        if found is None:
            return [] if self.index.get(name) is None else DayHistory().points(now)
        return found.points(now)

    def encoded_history(self, name: str) -> bytes | None:
        """Return a device's history as bytes."""
        found = self._histories.get(name)
        return None if found is None else found.encode()

    def tick(self, now: float) -> None:
        """Bring states and alerts up to `now`: silence and expiry come without a message."""
        self.urgent.update(record.name for record in self.index.evaluate(now))
        for name in [name for name, at in self._forged_at.items() if now - at > FORGED_S]:
            del self._forged_at[name]
            record = self.index.get(name)
            if record is not None:
                self._put(replace(record, alerts=without_alert(record.alerts, "forged")), now)
        if not self._due:
            self._due = [record.name for record in self.index]
        share, self._due = (
            self._due[: len(self.index) // TICK_SHARE + 1],
            self._due[len(self.index) // TICK_SHARE + 1 :],
        )
        for name in share:
            record = self.index.get(name)
            if record is not None:
                self._put(record, now)

    def forgotten(self) -> list[str]:
        """Return the devices that an operator wants to be forgotten."""
        return [name for name, settings in self.settings.items() if settings.forgotten]

    def forget(self, name: str) -> bool:
        """Forget a device; return whether it was there. If it is enrolled anew, it comes as a new one."""
        self.enrolled.pop(name, None)
        for names in (self.urgent, self.waiting, self.histories_changed):
            names.discard(name)
        self._histories.pop(name, None)
        self._forged_at.pop(name, None)
        for domain in [domain for domain, holder in self._domains.items() if holder == name]:
            del self._domains[domain]
        return self.index.remove(name)

    def _put(self, record: DeviceRecord, now: float) -> DeviceRecord | None:
        alerts = alerts_of(record, now, self.limits, self.index.listening_since)
        if alerts != record.alerts:
            record = replace(record, alerts=alerts)
        before = self.index.get(record.name)
        kept = self.index.put(record, now)
        if kept is not None and kept != before:
            if kept.domain:
                self._domains.setdefault(kept.domain, kept.name)
            (self.urgent if before is None or _matters(before, kept) else self.waiting).add(kept.name)
        return kept

    def _note_history(
        self, name: str, at: float | None, backlog: int | None, oldest_s: float | None, linked: bool, synced: bool
    ) -> None:
        if at is None or self.index.get(name) is None:
            return
        history = self._histories.setdefault(name, DayHistory())
        if history.note(at, backlog, oldest_s, linked=linked, synced=synced):
            self.histories_changed.add(name)


def _upgrade(before: UpgradeRecord, report: ConfigReport, now: float) -> UpgradeRecord:
    """Return how a device's last upgrade ended, with the time at which the service heard of it."""
    said = report.upgrade
    found = UpgradeRecord(
        to=said.to[:_TEXT_MAX],
        outcome=said.outcome[:_TEXT_MAX],
        reason=said.reason[:_TEXT_MAX],
        at=said.at[:_TEXT_MAX],
        heard_at=before.heard_at,
    )
    return before if found == before else replace(found, heard_at=now)


def _set(values: dict[str, T], name: str, value: T | None) -> None:
    if value is None:
        values.pop(name, None)
    else:
        values[name] = value


def _matters(before: DeviceRecord, after: DeviceRecord) -> bool:
    """Return whether a change is written at once: what a restarted service must not forget."""
    return (
        before.state != after.state
        or before.linked != after.linked
        or before.domain != after.domain
        or before.version != after.version
        or before.labels != after.labels
        or before.revoked_at != after.revoked_at
        or before.enrolled_at != after.enrolled_at
        or before.config != after.config
        or before.upgrade != after.upgrade
        or [alert.kind for alert in before.alerts] != [alert.kind for alert in after.alerts]
    )
