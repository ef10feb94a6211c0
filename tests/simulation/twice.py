"""Play the histories of some seeds twice, and print what came of each: `python -m simulation.twice SEED…`."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "differential"))

from simulation.network import STEPS, Network, networks, play, steps_of


def main(seeds: list[int]) -> None:
    logging.disable(logging.CRITICAL)  # each failure of the server is logged
    ends: list[object] = []
    end = Network.end

    def keep(network: Network) -> None:
        """Keep the story, the refs of the server, and the calls of each host."""
        end(network)
        ends.append(
            [list(network.story), network.server.refs(), [host.world.count for host in network.hosts]]
        )

    Network.end = keep  # type: ignore[method-assign, assignment]
    with networks() as made:
        for seed in (*seeds, *seeds):
            failure = play(made, seed, steps_of(seed), range(STEPS))
            assert failure is None, failure.message
    print(json.dumps(ends))


if __name__ == "__main__":
    main([int(seed) for seed in sys.argv[1:]])
