"""Whole files or none, damage that is found, and locks that end with their process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from files.disks import full_disk
from initscope.errors import BadInput
from initscope.files import check_writable, is_whole, locked, sealed, write_atomically
from initscope.files.tensors import read_tensors, sealed_tensors

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(st.dictionaries(st.text(), VALUES, max_size=4))
def test_what_is_sealed_is_whole_after_the_disk(content: dict[str, object]) -> None:
    assert is_whole(json.loads(json.dumps(sealed(content))))


@given(st.data())
@settings(max_examples=300)
def test_every_byte_of_a_sealed_object_counts(data: st.DataObject) -> None:
    """Damaged JSON either cannot be read, or is not whole, or says the same as before."""
    made = sealed({"row": 1, "sum": 0.125, "process": "a:1", "marks": [1.5, None]})
    text = bytearray(json.dumps(made).encode())
    text[data.draw(st.integers(0, len(text) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        found = json.loads(bytes(text))
    except ValueError:
        return
    assert found == made or not isinstance(found, dict) or not is_whole(found)


def test_every_byte_of_sealed_tensors_counts(tmp_path: Path) -> None:
    tensors = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.tensor(True), "c": torch.zeros(0, 2, dtype=torch.int64)}
    whole = sealed_tensors(tensors, "test/1", {"steps": 3})
    path = tmp_path / "x.safetensors"
    path.write_bytes(whole)
    found, about = read_tensors(path, "test/1", "test", "none")
    assert about == {"steps": 3}
    assert all(torch.equal(found[name], value) for name, value in tensors.items())
    accepted, said = 0, []
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        try:
            found, about = read_tensors(path, "test/1", "test", "none")
        except BadInput as error:
            said.append(str(error))
        else:  # a space of the header's padding that became another space
            accepted += 1
            assert about == {"steps": 3}
            assert all(torch.equal(found[name], value) for name, value in tensors.items())
    assert accepted < 8
    assert all(str(path) in line and len(line.splitlines()) == 1 for line in said)


@pytest.mark.parametrize("kind", ["bytes", "npy", "npz", "picture"])
def test_a_full_disk_is_one_line_and_leaves_what_was_there(tmp_path: Path, kind: str) -> None:
    import PIL.Image

    path = tmp_path / "out.png"
    path.write_bytes(b"before")
    numbers = np.random.default_rng(0).integers(0, 255, (200, 200, 3), np.uint8)
    write = {
        "bytes": lambda file: file.write(bytes(100_000)),
        "npy": lambda file: np.save(file, numbers),
        "npz": lambda file: np.savez(file, x=numbers, y=numbers),
        "picture": lambda file: PIL.Image.fromarray(numbers).save(file, format="TIFF", compression="tiff_lzw"),
    }[kind]
    with full_disk(), pytest.raises(BadInput, match=r"--out: cannot write .*; free some space or choose another place"):
        write_atomically(path, write, "--out")
    assert path.read_bytes() == b"before"
    assert [p.name for p in tmp_path.iterdir()] == ["out.png"]


def test_errors_that_are_not_the_disks_stay_what_they_are(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        write_atomically(tmp_path / "x", lambda file: 1 / 0, "--out")
    assert not list(tmp_path.iterdir())


def test_devices_are_not_replaced() -> None:
    path = Path(os.devnull)
    with pytest.raises(BadInput, match="is a device or a pipe"):
        check_writable(path, "--html")
    with pytest.raises(BadInput, match="is a device or a pipe"):
        write_atomically(path, lambda file: file.write(b"x"), "--html")
    assert path.is_char_device()


_HOLD = """
import sys, time
from pathlib import Path
from initscope.files import locked
with locked(Path(sys.argv[1]), "out", "testing"):
    print("held", flush=True)
    time.sleep(600)
"""


def hold(path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", _HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_process_leaves_no_lock(tmp_path: Path, how: signal.Signals) -> None:
    path = tmp_path / ".lock"
    with hold(path) as process:
        with (
            pytest.raises(BadInput, match=rf"out: another run is testing \(process {process.pid}\); wait for it, or"),
            locked(path, "out", "testing"),
        ):
            pass
        process.send_signal(how)
        process.wait()
        with locked(path, "out", "testing"):
            assert path.read_text() == str(os.getpid())
        assert not path.exists()


def test_one_of_many_threads_holds_it(tmp_path: Path) -> None:
    """Whoever comes while it is held is refused, whoever comes while it is being removed gets the next one."""
    inside: list[int] = []
    most: list[int] = []
    outcomes: list[str] = []

    def run(number: int) -> None:
        for _ in range(40):
            try:
                with locked(tmp_path / "lock", "out", "testing"):
                    inside.append(number)
                    most.append(len(inside))
                    time.sleep(1e-4)
                    inside.remove(number)
                    outcomes.append("held")
            except BadInput:
                outcomes.append("refused")

    threads = [threading.Thread(target=run, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 240
    assert max(most) == 1
    assert {"held", "refused"} == set(outcomes)
    assert not list(tmp_path.iterdir())
