"""Stored kernels: the same digits as in memory, only what is missing is computed, nothing wrong is kept."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

import initscope as iscope
from initscope import scale
from initscope.errors import BadInput, UndefinedSimilarity
from initscope.files import locked, sealed
from initscope.scale.kernels import lock_path
from initscope.scale.store import create_store
from scale.jobs import POOLED, images, stored


@pytest.mark.parametrize("quantity", ["product", "cosine", "distance", "defect"])
@pytest.mark.parametrize(
    "net",
    [POOLED, "conv3(8, padding=zero) relu flatten dense", "2x(dense relu)", "conv3(8, stride=2) relu flatten dense"],
)
def test_tiles_are_the_kernel(tmp_path: Path, net: str, quantity: str) -> None:
    x = images(7).double()
    network = iscope.parse(net)
    run = scale.kernel_to(network, x, tmp_path / "K.zarr", quantity=quantity, tile=3)  # type: ignore[arg-type]
    expected = iscope.kernel(network, x, quantity=quantity)  # type: ignore[arg-type]
    found = run.open().tensor()
    assert torch.equal(found, found.T)
    torch.testing.assert_close(found.square(), expected.square(), rtol=1e-12, atol=1e-15)
    assert (run.computed, run.found) == (6, 0)


@pytest.mark.parametrize("net", [POOLED, "2x(dense relu) dense(1)", "conv3(8, stride=2) relu flatten dense"])
@pytest.mark.parametrize("parametrization", ["ntk", "standard"])
def test_tangent_tiles_are_the_same_on_workers(tmp_path: Path, scheduler: str, net: str, parametrization: str) -> None:
    """By compiled loops and by the generic propagation: digits depend on the tile alone."""
    network, x = iscope.parse(net), images(7)
    options = {"quantity": "tangent", "parametrization": parametrization, "tile": 3}
    here = scale.kernel_to(network, x, tmp_path / "here.zarr", **options)  # type: ignore[arg-type]
    there = scale.kernel_to(network, x, tmp_path / "there.zarr", scheduler=scheduler, **options)  # type: ignore[arg-type]
    found = here.open().tensor()
    assert torch.equal(found, there.open().tensor())
    whole = iscope.tangent_kernel(network, x.double(), parametrization=parametrization)  # type: ignore[arg-type]
    torch.testing.assert_close(found.double(), whole, rtol=3e-6, atol=0)
    processes = {record["process"] for record in there.open().records()}
    assert processes.isdisjoint(record["process"] for record in here.open().records())


def test_entries_that_do_not_exist(tmp_path: Path) -> None:
    net, x = iscope.parse(POOLED), images(5)
    with pytest.raises(BadInput, match="got 'angle'"):
        scale.kernel_to(net, x, tmp_path / "K.zarr", quantity="angle")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="got 'ntk' with the quantity 'product', which has none"):
        scale.plan(net, x, parametrization="ntk")
    with pytest.raises(BadInput, match="choose 'ntk' or 'standard'"):
        scale.kernel_to(net, x, tmp_path / "K.zarr", quantity="tangent", parametrization="mup")  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


@given(count=st.integers(1, 9), tile=st.integers(1, 12))
@settings(max_examples=15, deadline=None)
def test_remainders_of_any_size(tmp_path_factory: pytest.TempPathFactory, count: int, tile: int) -> None:
    path = tmp_path_factory.mktemp("store") / "K.zarr"
    run, expected = stored(path, count, tile)
    assert torch.equal(run.open().tensor(), expected)
    blocks = -(-count // tile)
    assert run.plan.tiles == len(run.open().records()) == blocks * (blocks + 1) // 2


def test_every_zarr_reader_sees_the_upper_triangle(tmp_path: Path) -> None:
    run, expected = stored(tmp_path / "K.zarr", count=11, tile=4)
    group = zarr.open_group(str(run.path), mode="r")
    assert set(group) == {"kernel", "inputs"}
    values = np.asarray(group["kernel"][:])
    tiles = np.arange(11) // 4
    upper = tiles[:, None] <= tiles
    assert np.array_equal(values[upper], expected.numpy()[upper])
    assert np.isnan(values[~upper]).all()
    assert np.array_equal(np.asarray(group["inputs"][:]), images(11).numpy())
    assert group["kernel"].nchunks_initialized == 6


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_parts_are_read_as_a_tensor_would_be(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.getbasetemp() / "parts.zarr"
    expected = iscope.kernel(iscope.parse(POOLED), images(11))
    run = scale.kernel_to(iscope.parse(POOLED), images(11), path, tile=4, resume=True)
    assert run.computed in (0, 6)
    index = st.one_of(st.integers(-11, 10), st.slices(11).filter(lambda part: part.step in (None, 1)))
    rows, columns = data.draw(index), data.draw(index)
    assert torch.equal(run.open()[rows, columns], expected[rows, columns])
    assert torch.equal(run.open()[rows], expected[rows])


def test_parts_outside_are_refused(tmp_path: Path) -> None:
    kernel = stored(tmp_path / "K.zarr")[0].open()
    with pytest.raises(BadInput, match="index 11 is outside of 11"):
        kernel[11]
    with pytest.raises(BadInput, match="step 2"):
        kernel[::2]


def test_resume_computes_only_what_is_missing(tmp_path: Path) -> None:
    run, expected = stored(tmp_path / "K.zarr")
    store = run.open().store
    store.record_path(0, 1).unlink()  # killed between chunk and record
    store.chunk_path(1, 1).unlink()  # a lost file
    damaged = bytearray(store.chunk_path(0, 2).read_bytes())
    damaged[5] ^= 1  # one bit
    store.chunk_path(0, 2).write_bytes(damaged)
    store.chunk_path(2, 2).write_bytes(store.chunk_path(2, 2).read_bytes()[:-1])  # cut short
    (store.chunk_path(0, 0).parent / ".0.abc.part").write_bytes(b"half")
    untouched = store.chunk_path(0, 0).stat().st_mtime_ns
    steps: list[tuple[int, int]] = []
    again = scale.kernel_to(
        iscope.parse(POOLED),
        images(11),
        run.path,
        resume=True,
        progress=lambda done, total: steps.append((done, total)),
    )
    assert (again.computed, again.found) == (4, 2)
    assert steps == [(done, 6) for done in range(2, 7)]
    assert torch.equal(again.open().tensor(), expected)
    counts = {(r["row"], r["column"]): r["computed"] for r in again.open().records()}
    assert counts == {(0, 0): 1, (0, 1): 1, (0, 2): 2, (1, 1): 2, (1, 2): 1, (2, 2): 2}
    assert store.chunk_path(0, 0).stat().st_mtime_ns == untouched
    assert not list(run.path.rglob("*.part"))


def test_damage_is_not_read(tmp_path: Path) -> None:
    run, _ = stored(tmp_path / "K.zarr")
    store = run.open().store
    content = bytearray(store.chunk_path(0, 1).read_bytes())
    content[0] ^= 128
    store.chunk_path(0, 1).write_bytes(content)
    assert run.open().missing() == [(0, 1)]
    assert torch.equal(run.open()[:4, :4], run.open()[:4, :4])
    with pytest.raises(BadInput, match=r"tile \(0, 1\) is missing or damaged"):
        run.open().tensor()
    store.record_path(0, 1).write_text("{")
    assert store.record(0, 1) is None


def test_an_unfinished_matrix_is_refused(tmp_path: Path) -> None:
    run, expected = stored(tmp_path / "K.zarr")
    run.open().store.record_path(1, 2).unlink()
    with pytest.raises(BadInput, match="1 of 6 tiles are missing"):
        scale.open_kernel(run.path)
    partial = scale.open_kernel(run.path, partial=True)
    assert torch.equal(partial[:4], expected[:4])
    with pytest.raises(BadInput, match="resume"):
        partial.tensor()
    with pytest.raises(BadInput, match="does not exist"):
        scale.open_kernel(tmp_path / "none.zarr")
    with pytest.raises(BadInput, match="is no stored kernel"):
        scale.open_kernel(tmp_path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"net": "conv3(9, padding=circular) relu gap"}, "network"),
        ({"x": images(11, seed=1)}, "other inputs"),
        ({"x": images(10)}, "shape"),
        ({"x": images(11).double()}, "dtype float64, there float32"),
        ({"tile": 5}, "tile 5, there 4"),
        ({"quantity": "cosine"}, "quantity cosine, there product"),
    ],
)
def test_another_job_is_refused(tmp_path: Path, change: dict[str, object], words: str) -> None:
    run, expected = stored(tmp_path / "K.zarr")
    options = {"net": POOLED, "x": images(11), "tile": 4, "quantity": "product", **change}
    net = iscope.parse(str(options.pop("net")))
    with pytest.raises(BadInput, match=words):
        scale.kernel_to(net, options.pop("x"), run.path, resume=True, **options)  # type: ignore[arg-type]
    assert torch.equal(run.open().tensor(), expected)


def test_another_version_is_refused(tmp_path: Path) -> None:
    run, _ = stored(tmp_path / "K.zarr")
    group = json.loads((run.path / "zarr.json").read_text())
    kept = group["attributes"]["initscope"]
    kept["job"]["version"] = "0.0.1"
    group["attributes"]["initscope"] = sealed(kept)
    (run.path / "zarr.json").write_text(json.dumps(group))
    with pytest.raises(BadInput, match=r"version .*, there 0\.0\.1"):
        scale.kernel_to(iscope.parse(POOLED), images(11), run.path, resume=True)


def test_places_that_are_taken(tmp_path: Path) -> None:
    run, _ = stored(tmp_path / "K.zarr")
    net, x = iscope.parse(POOLED), images(11)
    with pytest.raises(BadInput, match="exists"):
        scale.kernel_to(net, x, run.path)
    (tmp_path / "other").mkdir()
    with pytest.raises(BadInput, match="is no stored kernel"):
        scale.kernel_to(net, x, tmp_path / "other", resume=True)
    with pytest.raises(BadInput, match="mkdir -p"):
        scale.kernel_to(net, x, tmp_path / "nowhere" / "K.zarr")
    with locked(lock_path(run.path), "test", "testing"), pytest.raises(BadInput, match="another run is writing"):
        scale.kernel_to(net, x, run.path, resume=True)


def test_what_tiles_cannot_do_is_refused(tmp_path: Path) -> None:
    x = images(5)
    with pytest.raises(BadInput, match="batch norm"):
        scale.kernel_to(iscope.parse("conv3 bn relu gap"), x, tmp_path / "K.zarr")
    with pytest.raises(BadInput, match="a worker needs about"):
        scale.kernel_to(iscope.parse(POOLED), x, tmp_path / "K.zarr", memory=1 << 20)
    with pytest.raises(BadInput, match="tile"):
        scale.kernel_to(iscope.parse(POOLED), x, tmp_path / "K.zarr", tile=0)
    with pytest.raises(BadInput, match="choose one"):
        scale.kernel_to(iscope.parse(POOLED), x, tmp_path / "K.zarr", workers=2, scheduler="tcp://127.0.0.1:1")
    with pytest.raises(BadInput, match="NaN"):
        scale.kernel_to(iscope.parse(POOLED), x * float("nan"), tmp_path / "K.zarr")
    odd = iscope.Sequential(iscope.Dense(3), iscope.Activate(iscope.Activation.from_function(torch.sinc)))
    with pytest.raises(BadInput, match="workers read the network as text"):
        scale.kernel_to(odd, x, tmp_path / "K.zarr")
    assert not list(tmp_path.iterdir())


def test_zero_inputs_are_said(tmp_path: Path) -> None:
    x = images(5)
    x[3] = 0
    with pytest.warns(UndefinedSimilarity, match="entries computed for K.zarr are NaN"):
        run = scale.kernel_to(iscope.parse(POOLED), x, tmp_path / "K.zarr", quantity="cosine", tile=2)
    found = run.open().tensor()
    assert found[3].isnan().all()
    assert found.isnan().sum() == 9


def test_a_full_disk_leaves_nothing_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, real = tmp_path / "K.zarr", os.fsync
    writes = 0

    def full(handle: int) -> None:
        nonlocal writes
        writes += 1
        if writes == 6:  # the record of the third tile comes with the sixth file
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    net, x = iscope.parse(POOLED), images(11)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(scale.Unfinished, match=r"No space left on device.*resume"):
            scale.kernel_to(net, x, path, tile=4)
    assert not list(path.rglob("*.part"))
    assert len(scale.open_kernel(path, partial=True).records()) == 2
    run = scale.kernel_to(net, x, path, resume=True)
    assert (run.computed, run.found) == (4, 2)
    assert torch.equal(run.open().tensor(), iscope.kernel(net, x))


def test_no_space_for_the_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(zarr, "create_group", full)
    with pytest.raises(BadInput, match="No space left on device"):
        scale.kernel_to(iscope.parse(POOLED), images(3), tmp_path / "K.zarr")
    assert not list(tmp_path.iterdir())


def test_a_place_taken_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    run, expected = stored(tmp_path / "K.zarr")
    with pytest.raises(BadInput, match="cannot write"):
        create_store(run.path, run.open().job, images(11))
    assert torch.equal(run.open().tensor(), expected)
    assert len(list(tmp_path.iterdir())) == 1
