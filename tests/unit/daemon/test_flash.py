"""What is written to flash, its wear, and its estimated life, from files as the kernel shows them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from eyot_daemon.config.read import load_options
from eyot_daemon.monitor.flash import (
    LIFETIME_DAYS_MAX,
    RATE_AFTER_S,
    REWRITES_ASSUMED,
    SAMPLE_EVERY_S,
    SAMPLES,
    FlashMeter,
    disk_of,
    endurance_of,
    lifetime_days,
    own_written,
    wear_of,
)
from eyot_wire.conf import ConfError
from eyot_wire.doctor.installation import installation
from eyot_wire.status import FlashStatus, StatusReport, StoreStatus
from support.manual_clock import ManualClock

SECTOR = 512
DAY_S = 86_400


class Machine:
    """The kernel's files about a disk with one partition that holds `folder`, and about this process."""

    def __init__(self, folder: Path, disk: str = "mmcblk0") -> None:
        self.sys, self.io, self.clock = folder / "sys", folder / "io", ManualClock()
        self.folder, self.disk = folder, folder / "sys/devices/host/target" / disk
        part = self.disk / "p2"
        part.mkdir(parents=True)
        (part / "partition").write_text("2\n")
        (self.disk / "device").mkdir()
        (self.sys / "dev/block").mkdir(parents=True)
        number = os.stat(folder).st_dev
        (self.sys / f"dev/block/{os.major(number)}:{os.minor(number)}").symlink_to(part)
        self.wrote(0, 0)

    def wrote(self, own: int, sectors: int) -> None:
        self.io.write_text(f"rchar: 1\nwrite_bytes: {own}\ncancelled_write_bytes: 7\n")
        (self.disk / "stat").write_text(f"  11 12 13 14 15 16 {sectors} 18 19 20 21\n")

    def meter(self) -> FlashMeter:
        return FlashMeter(str(self.folder), self.clock.monotonic, self.sys, self.io)


def test_rates_of_the_last_day(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.wrote(1000, 5)
    meter = machine.meter()
    machine.clock.advance(RATE_AFTER_S - 1)
    early = meter.status(0)
    assert (early.device, early.written_bytes, early.device_written_bytes) == ("mmcblk0", 1000, 5 * SECTOR)
    assert early.written_per_day is early.device_written_per_day is early.lifetime_days is None
    machine.clock.advance(1)
    machine.wrote(1000 + 600, 5 + 1200)
    now = meter.status(endurance_bytes=1200 * SECTOR * 144 * 10)
    assert (now.over_s, now.written_per_day) == (RATE_AFTER_S, 600 * 144)
    assert now.device_written_per_day == 1200 * SECTOR * 144
    assert (now.lifetime_days, now.endurance_assumed) == (10, False)
    for _ in range(2 * SAMPLES):  # the beginning, with its writes, is forgotten
        machine.clock.advance(SAMPLE_EVERY_S)
        meter.sample()
    assert meter.status(0).over_s <= DAY_S
    assert meter.status(0).written_per_day == 0


def test_a_disk_that_was_exchanged_has_no_rate(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.wrote(10, 1_000_000)
    meter = machine.meter()
    machine.clock.advance(RATE_AFTER_S)
    machine.wrote(10, 3)
    now = meter.status(10**12)
    assert now.device_written_per_day is None
    assert now.device_written_bytes == 3 * SECTOR


def test_what_the_kernel_does_not_show(tmp_path: Path) -> None:
    meter = FlashMeter(str(tmp_path), ManualClock().monotonic, tmp_path / "sys", tmp_path / "io")
    now = meter.status(0)
    assert now.device is now.written_bytes is now.device_written_bytes is now.endurance_bytes is None
    assert disk_of(str(tmp_path / "nothing")) is None
    assert own_written(tmp_path / "nothing") is None


def test_wear_of_emmc(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    disk = disk_of(str(tmp_path), machine.sys)
    assert disk == machine.disk
    assert wear_of(disk) == (None, None)
    (disk / "device/life_time").write_text("0x02 0x09\n")
    (disk / "device/pre_eol_info").write_text("0x02\n")
    assert wear_of(disk) == (90, "80 % of the reserved blocks are used")
    assert machine.meter().status(0).used_percent == 90
    (disk / "device/life_time").write_text("0x00 0x00\n")
    (disk / "device/pre_eol_info").write_text("nonsense")
    assert wear_of(disk) == (None, None)


def test_wear_of_ufs(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "sda")
    health = machine.disk.parent.parent / "health_descriptor"
    health.mkdir()
    (health / "life_time_estimation_a").write_text("0x01\n")
    (health / "life_time_estimation_b").write_text("0x0b\n")
    (health / "eol_info").write_text("0x01\n")
    assert wear_of(machine.disk) == (110, "normal")


def below_layers(machine: Machine, *disks: Path) -> None:
    """Put a volume on an encrypted device between the file system and `disks`."""
    number = os.stat(machine.folder).st_dev
    place = machine.sys / f"dev/block/{os.major(number)}:{os.minor(number)}"
    place.unlink()
    volume, encrypted = machine.sys / "devices/virtual/block/dm-1", machine.sys / "devices/virtual/block/dm-0"
    for upper, lower in ((volume, [encrypted]), (encrypted, disks)):
        (upper / "slaves").mkdir(parents=True)
        for each in lower:
            (upper / "slaves" / each.name).symlink_to(each)
    place.symlink_to(volume)


def test_the_disk_below_encryption_and_a_volume(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    below_layers(machine, machine.disk / "p2")
    assert disk_of(str(tmp_path), machine.sys) == machine.disk
    (machine.disk / "device/life_time").write_text("0x02 0x01\n")
    assert machine.meter().status(0).used_percent == 20


def test_a_volume_over_several_disks_is_no_single_disk(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    other = machine.disk.parent / "mmcblk1"
    other.mkdir()
    below_layers(machine, machine.disk, other)
    found = disk_of(str(tmp_path), machine.sys)
    assert found is not None
    assert found.name == "dm-0"


@pytest.mark.parametrize(
    ("flash", "states"),
    [
        (None, []),
        (FlashStatus(device="sda", written_bytes=1), []),
        (FlashStatus(device="mmcblk0", used_percent=70, reserve="normal", lifetime_days=365), ["ok"]),
        (FlashStatus(device="mmcblk0", used_percent=80), ["warning"]),
        (
            FlashStatus(device="mmcblk0", used_percent=110, reserve="90 % of the reserved blocks are used"),
            ["warning"] * 2,
        ),
        (FlashStatus(device="mmcblk0", lifetime_days=364, endurance_assumed=True), ["warning"]),
    ],
)
def test_the_doctor_tells_of_worn_flash(flash: FlashStatus | None, states: list[str]) -> None:
    store = StoreStatus(path="/s", commits=0, backlog_bytes=0)
    report = StatusReport(
        server_name="s", server_id="i", version="1", now="", uptime_s=1.0, domain="d", store=store, flash=flash
    )
    found = [each for each in installation(report) if each.name == "flash"]
    assert [each.state for each in found] == states
    assert all(each.remedy for each in found if each.state == "warning")


def test_endurance_by_size(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    assert endurance_of(machine.disk) is None
    (machine.disk / "size").write_text("1000\n")
    assert endurance_of(machine.disk) == 1000 * SECTOR * REWRITES_ASSUMED
    assert machine.meter().status(0).endurance_assumed
    (machine.disk / "queue").mkdir()
    (machine.disk / "queue/rotational").write_text("1\n")
    assert endurance_of(machine.disk) is None


def test_lifetime() -> None:
    assert lifetime_days(1000, None, 10) == 100
    assert lifetime_days(1000, 90, 10) == 10
    assert lifetime_days(1000, 110, 10) == 0
    assert lifetime_days(10**18, None, 1) == LIFETIME_DAYS_MAX
    assert lifetime_days(1000, None, 0) is lifetime_days(None, None, 10) is lifetime_days(1000, None, None) is None


def test_endurance_in_the_configuration(tmp_path: Path) -> None:
    file = tmp_path / "eyotd.conf"
    file.write_text('eyot { flash { endurance: "2T" } }')
    assert load_options(file).options.eyot.flash.endurance_bytes == 2 << 40
    file.write_text("eyot { flash { endurance: -1 } }")
    with pytest.raises(ConfError, match="negative"):
        load_options(file)
