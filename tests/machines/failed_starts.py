"""Starts that fail on a machine with systemd: those that only an operator mends, and one that mends itself.

docs/operate/run.md has a row for each cause. tests/unit/daemon/test_start_errors.py makes every cause happen, without systemd.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from appliance import Appliance

#: Longer than the pause before systemd's first new start.
STAYS_DOWN_S = 10.0
NO_RESTART = "A restart does not mend this"
#: A file that the configuration includes.
LATE_FILE = "/etc/eyot/late.conf"
#: Replaces the format of the store, and prints the one before; run by the package's own Python modules.
CHANGE_FORMAT = """
systemctl stop eyotd
runuser -u eyot -- /usr/bin/python3 -I - {number} <<'END'
import sys
sys.path.insert(0, "/usr/lib/eyot/python")
import lmdb
from eyot_store.environment import FORMAT_KEY
with lmdb.open("/var/lib/eyot/eyot", max_dbs=16, map_size=1 << 26) as env, env.begin(write=True) as txn:
    print(txn.get(FORMAT_KEY).decode())
    txn.put(FORMAT_KEY, sys.argv[1].encode())
END
"""


class FailedStarts:
    """`conf` is a configuration with which the service runs."""

    def __init__(self, appliance: Appliance, conf: str) -> None:
        self._appliance = appliance
        self._conf = conf

    def mistake(self) -> str:
        """A mistake in the configuration is not tried again; the daemon starts once the mistake is mended."""
        self._appliance.configure(self._conf + "max_payloud: 2MB\n")
        told = self._stays_down("max_payloud")
        self._appliance.configure(self._conf)
        return f"{told}; {self._mended()}"

    def newer_store(self) -> str:
        """A store that a newer release wrote is not tried again, and the newer release finds it as it was."""
        ours = self._change_format("99")
        told = self._stays_down("on-disk format 99")
        assert "install that release again, or restore a backup into an empty store_dir" in told, told
        assert NO_RESTART in told, told
        found = self._change_format(ours)
        assert found == "99", found
        return f"{told}; {self._mended()}"

    def late_file(self) -> str:
        """A file that is missing is tried again, and the service comes by itself once the file is there."""
        self._appliance.configure(f'{self._conf}include "{LATE_FILE}"\n')
        self._appliance.machine.run("systemctl restart --no-block eyotd")
        self._appliance.wait(lambda: int(self._appliance.shown("NRestarts")["NRestarts"]) >= 2, "not tried again")
        assert LATE_FILE in self._appliance.journal("-n 20")
        self._appliance.machine.run(f"echo 'server_tags: [late]' >{LATE_FILE}")
        self._appliance.await_active()
        shown = self._appliance.shown("NRestarts")
        self._appliance.configure(self._conf)
        self._appliance.machine.run(f"rm {LATE_FILE}; systemctl restart eyotd")
        return f"there after {shown['NRestarts']} new starts; {self._appliance.check()}"

    # -- inside ------------------------------------------------------------------------------------------------------

    def _stays_down(self, words: str) -> str:
        """Restart the service: it fails once, tells of it once, and is left alone. Return the line with `words`."""
        machine = self._appliance.machine
        cursor = machine.run("journalctl -q -n 0 --show-cursor").strip().removeprefix("-- cursor: ")
        code, _ = machine.try_run("systemctl restart eyotd")
        assert code != 0, "systemctl does not tell that the start failed"
        time.sleep(STAYS_DOWN_S)
        shown = self._appliance.shown("ActiveState", "ExecMainStatus", "NRestarts")
        assert shown == {"ActiveState": "failed", "ExecMainStatus": "78", "NRestarts": "0"}, shown
        machine.run("journalctl --sync")
        records = self._appliance.journal(f"-o cat --after-cursor='{cursor}'").splitlines()
        told = [line for line in records if words in line]
        assert len(told) == 1, records
        assert sum("Main process exited" in line for line in records) == 1, records
        return told[0]

    def _mended(self) -> str:
        """The service runs again, by the command that an operator takes first."""
        self._appliance.machine.run("systemctl restart eyotd")
        return self._appliance.check()

    def _change_format(self, number: str) -> str:
        return self._appliance.machine.run(CHANGE_FORMAT.format(number=number)).strip()
