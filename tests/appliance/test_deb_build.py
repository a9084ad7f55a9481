"""How the Debian package is built: by Debian's rules, and the same bytes from the same sources."""

from __future__ import annotations

import re
import subprocess
import tarfile
from email.utils import parsedate_to_datetime
from pathlib import Path

PACKAGING = Path(__file__).parents[2] / "packaging"


def test_lintian_finds_nothing_that_is_not_explained(package: Path) -> None:
    checked = subprocess.run(
        ["lintian", "--allow-root", "--display-info", "--pedantic", package],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
    )
    assert (checked.returncode, checked.stdout) == (0, ""), checked.stderr


def test_every_override_has_its_reason() -> None:
    explained = False
    for line in (PACKAGING / "debian/eyot.lintian-overrides").read_text().splitlines():
        assert explained or line.startswith("# "), line
        explained = True


def test_no_file_is_newer_than_the_changelog(package: Path, tmp_path: Path) -> None:
    """What is made during a build gets the date of the changelog: nothing in the package tells when it was built."""
    shown = subprocess.run(["dpkg-deb", "--ctrl-tarfile", package], capture_output=True, check=True).stdout
    (tmp_path / "control.tar").write_bytes(shown)
    (tmp_path / "data.tar").write_bytes(
        subprocess.run(["dpkg-deb", "--fsys-tarfile", package], capture_output=True, check=True).stdout
    )
    dated = re.search(r"^ -- .*>  (.*)$", (PACKAGING / "debian/changelog").read_text(), re.MULTILINE)
    assert dated is not None
    latest = parsedate_to_datetime(dated.group(1)).timestamp() + 60  # the release's own entry: packaging/build-deb
    for name in ("control.tar", "data.tar"):
        with tarfile.open(tmp_path / name) as archive:
            members = archive.getmembers()
        names = [member.name for member in members]
        assert len(names) > 3
        assert names == sorted(names, key=lambda path: path.split("/")), name
        for member in members:
            assert member.mtime <= latest, member.name
            assert (member.uid, member.gid, member.uname, member.gname) == (0, 0, "root", "root"), member.name
            assert member.mode & 0o022 == 0 or member.issym(), member.name


def test_no_file_names_the_folder_of_the_build(package: Path, tmp_path: Path) -> None:
    subprocess.run(["dpkg-deb", "-R", package, tmp_path / "root"], check=True)
    # A checkout may lie in a folder with a short name, as /src: what lies in it tells it from others.
    folders = "|".join(re.escape(path.name) for path in PACKAGING.parent.iterdir() if path.is_dir())
    found = subprocess.run(
        [
            "grep",
            "-rlaP",
            rf"(?<![\w./-]){re.escape(str(PACKAGING.parent))}/({folders})/|/build/deb",
            "--",
            tmp_path / "root",
        ],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
    )
    assert found.returncode < 2, found.stderr
    # The prose of docs and of the changelog may name build/deb; programs and modules may not.
    assert [line for line in found.stdout.splitlines() if "/usr/share/doc/" not in line] == []
    assert found.stderr == ""


def test_it_carries_no_notes_of_the_installer(package: Path) -> None:
    listed = subprocess.run(["dpkg-deb", "-c", package], capture_output=True, text=True, check=True).stdout
    assert ".dist-info/METADATA" in listed
    for note in ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json"):
        assert f".dist-info/{note}" not in listed
    assert ".pyc" not in listed  # compiled at the installation (eyot.postinst)


def test_its_copyright_holds_the_licence_of_everything_it_carries(package: Path, tmp_path: Path) -> None:
    subprocess.run(["dpkg-deb", "-x", package, tmp_path], check=True)
    text = (tmp_path / "usr/share/doc/eyot/copyright").read_text()
    named = {name for line in re.findall(r"^License: (.*)$", text, re.MULTILINE) for name in line.split(" and ")}
    carried = {path.name.removesuffix(".dist-info") for path in tmp_path.glob("usr/lib/eyot/python/*.dist-info")}
    assert len(carried) > 20
    assert carried <= named
