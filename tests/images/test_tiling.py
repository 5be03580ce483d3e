"""Tiles give what the whole picture gives, and no more memory than was allowed."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch

from initscope.errors import BadInput
from initscope.images import layout, reconstruct
from initscope.images import pipeline as pipeline_module
from initscope.images.decoding import least_squares_moves
from initscope.images.tiling import (
    Halo,
    TilePlan,
    _tiles,
    decoder_moves,
    encoder_moves,
    halo,
    map_bytes,
    plan_tiles,
)
from initscope.networks.planning import memory_bytes

CASES: dict[str, dict[str, Any]] = {
    "cd1": {"depth": 1, "channels": 6},
    "one convolution": {"depth": "1_1", "channels": 6},
    "average": {"depth": 1, "channels": 6, "variant": "average"},
    "cd2": {"depth": 2, "channels": 5},
    "cd2 l2 nearest": {"depth": 2, "channels": 5, "pooling": "l2", "upsampling": "nearest", "variant": "average"},
    "cd3 average pooling": {"depth": 3, "channels": 3, "pooling": "average"},
    "kernel 4": {"depth": 2, "channels": 4, "kernel": 4},
    "alexnet cd1": {"arch": "alexnet", "depth": 1, "channels": 6},
    "alexnet cd3": {"arch": "alexnet", "depth": 3, "channels": 4},
    "several": {"depth": 2, "channels": 4, "decoder": "averaged", "decoders": 2},
    "matched": {"depth": 2, "channels": 8, "decoder": "matched"},
    "matched alexnet": {"arch": "alexnet", "depth": 2, "channels": 6, "decoder": "matched"},
    "least squares": {"depth": 2, "channels": 5, "decoder": "least-squares"},
    "least squares alexnet": {"arch": "alexnet", "depth": 1, "channels": 5, "decoder": "least-squares"},
}


@pytest.mark.parametrize("name", CASES)
def test_tiles_give_the_same_picture(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    image = torch.rand(3, 93, 214, generator=torch.Generator().manual_seed(0))
    whole = reconstruct(image, **CASES[name])
    assert whole.tiles == 1

    def small(moves: Any, inputs: int, size: tuple[int, int], allowed: int, live: float = 2.0) -> TilePlan:
        return TilePlan(tuple(_tiles(size, (32, 48), halo(moves))), 0)

    monkeypatch.setattr(pipeline_module, "plan_tiles", small)
    monkeypatch.setattr("initscope.images.decoding.plan_tiles", small)
    tiled = reconstruct(image, **CASES[name])
    assert tiled.tiles == 15
    scale = float(whole.output.abs().max())
    torch.testing.assert_close(tiled.output / scale, whole.output / scale, rtol=0, atol=2e-5)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_halo_is_as_large_as_it_has_to_be(depth: int) -> None:
    """A pixel changes the output exactly as far as the halo says, or less than a cell of the grid nearer."""
    from initscope.images import Decoder, Encoder

    plan = layout("vgg16", depth, channels=8)
    reach = halo(encoder_moves(plan) + decoder_moves(plan))
    size = 2 * (reach.before + reach.after) // reach.grid * reach.grid + 4 * reach.grid
    encoder, decoder = Encoder(plan, law="he"), Decoder(plan, law="he")
    middle = size // 2 // reach.grid * reach.grid
    seen = torch.zeros(size, dtype=torch.bool)
    base = torch.rand(1, 3, size, size, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = decoder(encoder(base), (size, size))
        for shift in range(reach.grid):
            other = base.clone()
            other[..., middle + shift] += 1
            seen |= (decoder(encoder(other), (size, size)) != expected).any(2).any(1)[0]
    touched = seen.nonzero().flatten()
    after, before = middle - int(touched.min()), int(touched.max()) - (middle + reach.grid - 1)
    assert 0 <= reach.after - after <= 2 * reach.grid
    assert 0 <= reach.before - before <= 2 * reach.grid


def test_tiles_cover_everything_once() -> None:
    for reach in (Halo(4, 4, 1), Halo(10, 13, 4)):
        covered = torch.zeros(37, 50, dtype=torch.int)
        for tile in _tiles((37, 50), (12, 20), reach):
            covered[tile.rows, tile.columns] += 1
            assert tile.source_rows.start % reach.grid == tile.source_columns.start % reach.grid == 0
            assert tile.source_rows.start <= max(0, tile.rows.start - reach.before)
            assert tile.source_columns.stop >= min(50, tile.columns.stop + reach.after)
        assert bool((covered == 1).all())


def test_plans_fit_and_use_few_tiles() -> None:
    plan = layout("vgg16", 2)
    moves = encoder_moves(plan) + decoder_moves(plan)
    whole = map_bytes(moves, 3, (512, 512))
    one = plan_tiles(moves, 3, (512, 512), whole)
    assert one is not None
    assert len(one) == 1
    less = plan_tiles(moves, 3, (512, 512), whole // 2)
    assert less is not None
    assert 2 <= len(less) <= 8
    assert less.bytes <= whole // 2
    assert plan_tiles(moves, 3, (512, 512), 1000) is None
    assert plan_tiles(least_squares_moves(plan, 3), 3, (1, 1), whole) is not None


def test_filters_that_do_not_fit_are_drawn_in_blocks() -> None:
    image = torch.rand(3, 16, 16, generator=torch.Generator().manual_seed(2))
    whole = reconstruct(image, channels=1024)
    less = reconstruct(image, channels=1024, memory="100 MB")
    assert any("drawn again" in note for note in less.notes)
    assert not whole.notes or not any("drawn again" in note for note in whole.notes)
    scale = float(whole.output.abs().max())
    torch.testing.assert_close(less.output / scale, whole.output / scale, rtol=0, atol=2e-5)


def test_what_cannot_fit_is_refused_at_once() -> None:
    with pytest.raises(BadInput, match=r"needs about .* 10\.0 MiB are allowed; raise memory"):
        reconstruct(torch.rand(3, 64, 64), channels=4096, memory=10 * 2**20)
    with pytest.raises(BadInput, match="needs about"):
        reconstruct(torch.rand(3, 2000, 2000), memory="20MiB")


@pytest.mark.parametrize("text", ["two", "-1", "0", "1 PiB", True, None, 0, -5])
def test_wrong_sizes_of_memory(text: Any) -> None:
    with pytest.raises(BadInput, match="memory: got"):
        memory_bytes(text)


_MEASURE = """
import sys, torch
from pathlib import Path
from initscope.images import reconstruct
torch.set_num_threads(1)
options = dict(channels=48, decoder=sys.argv[1], decoders=2)
reconstruct(torch.rand(3, 32, 32), memory="1 GiB", **options)
before = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
image = torch.rand(3, 700, 700)
found = reconstruct(image, memory="160 MiB", **options)
print(found.tiles, (int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) - before) * 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the unit of the peak differs")
@pytest.mark.parametrize("decoder", ["random", "averaged", "matched", "least-squares"])
def test_the_peak_stays_within_the_budget(decoder: str) -> None:
    done = subprocess.run([sys.executable, "-c", _MEASURE, decoder], capture_output=True, text=True, check=True)
    tiles, peak = (int(word) for word in done.stdout.split())
    assert tiles > 1
    assert peak <= 160 * 2**20
