"""Random conversations about JetStream with eyotd and nats-server at once, one seed after the other:

    python tests/fuzz/differential.py --first 0 --count 100 [--steps 60] [--scenario buckets] [--restart stop|kill]

Scenarios: `support/jetstream/scenarios.py`. With --restart both servers are started again in the middle of each conversation. Prints the first difference of each conversation; exit code 1 if there was one. Where the two differ on purpose or by their nature is
left out by `support/jetstream/peer.py`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.jetstream.differential import Conversation
from support.jetstream.peer import Peer
from support.jetstream.scenarios import SCENARIOS, config_of, interrupted
from support.servers.eyotd import Eyotd
from support.servers.newer_nats_server import NewerNatsServer


def _play(seeds: range, options: argparse.Namespace, work: Path) -> int:
    """Hold these conversations with the same two servers; returns how many differ."""
    differing = 0
    config = config_of(options.scenario)
    with Eyotd(config, work / "eyotd") as ours, NewerNatsServer(config, work / "nats") as theirs:
        for seed in seeds:
            talker = SCENARIOS[options.scenario](seed)
            steps = talker.steps(options.steps)
            if options.restart:
                steps = interrupted(steps, kill=options.restart == "kill")
            peers = Peer(ours.client_port, **talker.connect), Peer(theirs.client_port, **talker.connect)
            conversation = Conversation(peers, (ours, theirs))
            difference = next(conversation.play(steps), None)
            difference = conversation.end() if difference is None else (conversation.end(), difference)[1]
            if difference is not None:
                differing += 1
                print(f"seed {seed}, {difference}", flush=True)
            for peer in peers:
                peer.client.sock.close()
    return differing


def main() -> int:
    parser = argparse.ArgumentParser(description="holds eyotd's answers against nats-server's")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=100, help="how many conversations")
    parser.add_argument("--steps", type=int, default=60, help="how long each is")
    parser.add_argument("--scenario", choices=SCENARIOS, default="all", help="what is talked about")
    parser.add_argument("--restart", choices=("stop", "kill"), help="how both servers end in the middle")
    options = parser.parse_args()
    differing = 0
    with tempfile.TemporaryDirectory(prefix="eyot-differential-") as folder:
        # What is begun to be restored is never ended: each of these conversations has servers of its own.
        end, at_once = options.first + options.count, 1 if options.scenario == "archives" else options.count
        for first in range(options.first, end, at_once):
            differing += _play(range(first, first + at_once), options, Path(folder) / str(first))
    print(f"{differing} of {options.count} conversations differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
