"""What is written to the flash under the store, and how long it lasts at this rate.

| figure | from |
|---|---|
| bytes this process has written | `write_bytes` of `/proc/self/io`: what its writes and its memory maps gave to the block layer |
| bytes anybody has written to the disk | sectors written, in the `stat` of the disk that holds the store |
| wear of eMMC and SD devices | `life_time` and `pre_eol_info` of the device (JEDEC eMMC 5.0) |
| wear of UFS devices | `health_descriptor` of its host |

Rates are those of the last day, or since the start, and null in the first ten minutes. NVMe and SATA disks show their wear to
privileged requests only, not in files: for them the estimate needs `endurance`.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from eyot_daemon.config.options import Options
from eyot_daemon.monitor.flash_pacer import STEP_S, FlashPacer
from eyot_daemon.process.service import ReloadSteps, Runtime
from eyot_daemon.router.broker import Broker
from eyot_daemon.router.providers import HealthzQuery, Unhealthy
from eyot_daemon.turn.timers import TimerHandle
from eyot_wire.status import RESERVE_NORMAL, FlashStatus

SYS = Path("/sys")
PROCESS_IO = Path("/proc/self/io")
#: Between two samples; a rate is over at most `SAMPLES` of them, one day.
SAMPLE_EVERY_S = 900.0
SAMPLES = 96
#: No rate is told over less: a start writes more than a day's average.
RATE_AFTER_S = 600.0
_SECTOR_BYTES = 512  # of `stat`, whatever the device's own
_SECTORS_WRITTEN = 6  # Documentation/block/stat.rst, from 0
_DAY_S = 86_400.0
#: How often a whole device can be rewritten where nobody told its endurance: cautious for flash of two or three bits a cell,
#: whose cells last 1,000 to 3,000 erasures, of which the device itself uses a part.
REWRITES_ASSUMED = 1000
#: A longer time is not told: nothing else of the device lasts that long.
LIFETIME_DAYS_MAX = 36_500
#: `pre_eol_info`, and `eol_info` of UFS: reserved blocks.
_RESERVE = {1: RESERVE_NORMAL, 2: "80 % of the reserved blocks are used", 3: "90 % of the reserved blocks are used"}
#: Layers of the device mapper between a file system and its disk: a volume on an encrypted partition has two.
_LAYERS_MAX = 8
#: Folders between a disk of UFS and its host.
_HOST_DEPTH = 6


class Wear(NamedTuple):
    """What a device says about itself. `used_percent`: used part of its life, the upper bound of its step of ten; over 100: exceeded."""

    used_percent: int | None = None
    reserve: str | None = None


class _Written(NamedTuple):
    """Bytes written so far, None where the kernel does not show them."""

    at_s: float
    own: int | None
    device: int | None


def disk_of(path: str, sys: Path = SYS) -> Path | None:
    """Return the kernel's folder of the whole disk that holds a directory; None: no disk of its own (tmpfs, overlay).

    Below encryption and volumes that lie on one disk, it is that disk: only a real device knows its wear.
    """
    try:
        number = os.stat(path).st_dev
        block = (sys / "dev" / "block" / f"{os.major(number)}:{os.minor(number)}").resolve(strict=True)
    except OSError:
        return None
    for _ in range(_LAYERS_MAX):
        below = [each.resolve() for each in (block / "slaves").glob("*")]
        if len(below) != 1:
            break
        block = below[0]
    return block.parent if (block / "partition").exists() else block


def wear_of(disk: Path) -> Wear:
    """Return the wear as the device estimates it."""
    if (disk / "device" / "life_time").exists():
        folder, files, reserved = disk / "device", ["life_time"], "pre_eol_info"
    else:
        folder, reserved = _health_descriptor(disk), "eol_info"
        files = ["life_time_estimation_a", "life_time_estimation_b"]
    steps = [step for name in files for step in _numbers(folder / name)]
    reserve = _numbers(folder / reserved)
    return Wear(
        max(steps) * 10 if any(steps) else None, _RESERVE.get(reserve[0]) if reserve else None
    )  # 0: not defined


def _health_descriptor(disk: Path) -> Path:
    """Return where a UFS host keeps its health; a folder that does not exist for any other device."""
    device = (disk / "device").resolve()
    above = [device, *device.parents][:_HOST_DEPTH]
    return next((each / "health_descriptor" for each in above if (each / "health_descriptor").is_dir()), disk / "none")


def _numbers(file: Path) -> list[int]:
    """Return the hexadecimal numbers of a file of the kernel's; [] without one."""
    try:
        return [int(word, 16) for word in file.read_text().split()]
    except (OSError, ValueError):
        return []


def _decimals(file: Path) -> list[int]:
    try:
        return [int(word) for word in file.read_text().split()]
    except (OSError, ValueError):
        return []


def own_written(io: Path = PROCESS_IO) -> int | None:
    """Return the bytes that this process caused to be written to disks; None: the kernel does not count them."""
    try:
        lines = dict(line.split(": ", 1) for line in io.read_text().splitlines() if ": " in line)
        return int(lines["write_bytes"])
    except (OSError, ValueError, KeyError):
        return None


def endurance_of(disk: Path) -> int | None:
    """Return the bytes that can be written to a disk in its life, by its size; None: it is no flash, or has no size."""
    size, rotates = _decimals(disk / "size"), _decimals(disk / "queue" / "rotational")
    if not size or not size[0] or rotates == [1]:
        return None
    return size[0] * _SECTOR_BYTES * REWRITES_ASSUMED


class FlashMeter:
    """Measures for one store. `monotonic`: seconds; `sys`, `io`: where the kernel shows its figures."""

    def __init__(self, path: str, monotonic: Callable[[], float], sys: Path = SYS, io: Path = PROCESS_IO) -> None:
        self._disk = disk_of(path, sys)
        self._io = io
        self._monotonic = monotonic
        self._samples: deque[_Written] = deque(maxlen=SAMPLES)
        self.sample()

    def sample(self) -> None:
        """Keep what is written by now; once every `SAMPLE_EVERY_S`."""
        self._samples.append(self._written())

    def status(self, endurance_bytes: int) -> FlashStatus:
        """Return the figures of this moment. `endurance_bytes`: as configured, 0: not."""
        now, first = self._written(), self._samples[0]
        over_s = now.at_s - first.at_s
        own, device = _per_day(first.own, now.own, over_s), _per_day(first.device, now.device, over_s)
        wear = Wear() if self._disk is None else wear_of(self._disk)
        endurance = endurance_bytes or (None if self._disk is None else endurance_of(self._disk))
        return FlashStatus(
            device=None if self._disk is None else self._disk.name,
            written_bytes=now.own,
            device_written_bytes=now.device,
            over_s=over_s,
            written_per_day=own,
            device_written_per_day=device,
            used_percent=wear.used_percent,
            reserve=wear.reserve,
            endurance_bytes=endurance,
            endurance_assumed=endurance is not None and not endurance_bytes,
            lifetime_days=lifetime_days(endurance, wear.used_percent, own if device is None else device),
        )

    def _written(self) -> _Written:
        stat = [] if self._disk is None else _decimals(self._disk / "stat")
        device = stat[_SECTORS_WRITTEN] * _SECTOR_BYTES if len(stat) > _SECTORS_WRITTEN else None
        return _Written(self._monotonic(), own_written(self._io), device)


def _per_day(first: int | None, now: int | None, over_s: float) -> int | None:
    if first is None or now is None or over_s < RATE_AFTER_S or now < first:  # less than before: a disk was exchanged
        return None
    return int((now - first) / over_s * _DAY_S)


def lifetime_days(endurance_bytes: int | None, used_percent: int | None, bytes_per_day: int | None) -> int | None:
    """Return how many days what is left of the endurance lasts; None: not known. Without `used_percent` all of it is left."""
    if endurance_bytes is None or not bytes_per_day:
        return None
    left = endurance_bytes * max(0, 100 - (used_percent or 0)) // 100
    return min(LIFETIME_DAYS_MAX, left // bytes_per_day)


class FlashService:
    """Samples, and paces commits, while a store is open.

    `store_path`: the directory of JetStream's store, None while there is none. `set_window`: takes the seconds that commits of
    streams that allow it wait for others. `io`: where the kernel shows what this process has written.
    """

    name = "flash"

    def __init__(
        self,
        broker: Broker,
        store_path: Callable[[], Path | None],
        set_window: Callable[[float], None],
        io: Path = PROCESS_IO,
    ) -> None:
        self._broker = broker
        self._store_path = store_path
        self._set_window = set_window
        self._io = io
        self._pacer = FlashPacer()
        self._pacing: TimerHandle | None = None
        self._timer: TimerHandle | None = None
        self._meter: FlashMeter | None = None

    def configure(self, options: Options) -> None:
        return None

    def start(self, prepared: None, runtime: Runtime) -> None:
        self._broker.providers.flash = self._status
        runtime.when_open(self._begin)

    def reload(self, prepared: None, steps: ReloadSteps) -> None:
        """Do nothing: the options are read with each report and step."""

    def health(self, query: HealthzQuery) -> Unhealthy | None:
        """Return None: worn flash still works."""
        return None

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._pacing is not None:
            self._pacing.cancel()
            self._pacing = None

    def _begin(self) -> None:
        self._open_meter()
        self._sample()
        self._pace()

    def _pace(self) -> None:
        self._pacing = self._broker.timers.call_later(STEP_S, self._pace)
        options = self._broker.options.eyot.flash
        written = own_written(self._io) if options.budget_bytes else None
        now_s = self._broker.clock.monotonic()
        self._set_window(self._pacer.step(now_s, written, options.budget_bytes, options.max_window_s))

    def _sample(self) -> None:
        self._timer = self._broker.timers.call_later(SAMPLE_EVERY_S, self._sample)
        meter = self._meter
        if meter is not None and self._open_meter() is meter:
            meter.sample()

    def _open_meter(self) -> FlashMeter | None:
        """Return the store's meter, which begins when the store is first seen."""
        path = self._store_path()
        if path is None:
            self._meter = None
        elif self._meter is None:
            self._meter = FlashMeter(str(path), self._broker.clock.monotonic)
        return self._meter

    def _status(self) -> FlashStatus | None:
        """Return the figures; None: there is no store."""
        meter, options = self._open_meter(), self._broker.options.eyot.flash
        if meter is None:
            return None
        status = meter.status(options.endurance_bytes)
        return replace(status, budget_bytes=options.budget_bytes or None, window_s=self._pacer.window_s)
