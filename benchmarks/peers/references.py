"""The peer's kernels of some networks as one small file, which a slow test holds initscope against without the peer.

The file has "networks" (JSON without the inputs), "inputs" (float32, one after the other), and "product" and "tangent", each
(networks, 4, 4) in float64.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from random_networks import Network, kinds
from verdicts import Verdict, matrix

Answers = dict[int, dict[str, Any]]


def choose(found: list[list[Verdict]], theirs: Answers, count: int) -> list[Network]:
    """Networks on which the peer is right (and not zero), first those that bring layers which no earlier one has."""
    right = [verdicts[0].network for verdicts in found if all(_peer_is_right(v) for v in verdicts)]
    sound = [network for network in right if (np.diag(_matrix(theirs, network, "tangent")) > 0).all()]
    missing = {kind for network in sound for kind in kinds(network["layers"])}
    chosen: list[Network] = []
    rest = list(sound)
    while rest and len(chosen) < count:
        best = max(rest, key=lambda network: len(kinds(network["layers"]) & missing))
        chosen.append(best)
        rest.remove(best)
        missing -= kinds(best["layers"])
    return sorted(chosen, key=lambda network: int(network["index"]))


def _peer_is_right(v: Verdict) -> bool:
    tolerance = 1e-8  # the test asks for 1e-6
    return v.theirs <= tolerance


def save(path: Path, networks: list[Network], theirs: Answers) -> None:
    described = [{key: value for key, value in network.items() if key != "inputs"} for network in networks]
    np.savez_compressed(
        path,
        networks=np.frombuffer(json.dumps(described).encode(), np.uint8),
        inputs=np.concatenate([np.ravel(network["inputs"]) for network in networks]).astype(np.float32),
        **{name: np.stack([_matrix(theirs, network, name) for network in networks]) for name in ("product", "tangent")},
    )


def _matrix(theirs: Answers, network: Network, name: str) -> np.ndarray:
    found = matrix(theirs[network["index"]][name])
    assert found is not None
    return found
