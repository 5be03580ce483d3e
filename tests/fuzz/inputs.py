"""Hostile inputs: texts of the architecture language, pictures, arrays."""

from __future__ import annotations

import gzip
import io
import random
import struct
from pathlib import Path

import numpy as np
import PIL.Image

from fuzz.harness import Case, Target, damaged
from initscope.data import load
from initscope.data.folder import SUFFIXES
from initscope.errors import BadInput
from initscope.networks import parse, unparse

_NETWORKS = (
    "conv3(8, padding=circular) relu gap", "2x(dense relu) dense(1)", "conv3 10x(res(bn relu conv3)) gap",
    "conv3(8, stride=2) ln gelu flatten dense(10, law=orthogonal)", "cat(conv1 relu, conv3 tanh) avgpool2 gap",
    "dense(100, bias=0.1) erf dropout(0.1) dense", "conv5(groups=2) maxpool2 res(relu conv3) gap",
)  # fmt: skip
_WORDS = """conv3 conv1 dense relu tanh gelu erf sin step sign gap flatten bn ln res cat sum x ( ) , = 2x 10x law= bias=
padding=circular stride=2 orthogonal 0.1 1e400 -1 nan inf 99999999999999999999 dropout( avgpool2 maxpool l2pool . : ; # '
" \\ é 𝟛 ² 0x10 1_0 += ** None True"""
_TOKENS = (*_WORDS.split(), "\n", "\t", "\0")


def _language(folder: Path) -> Case:
    def case(rng: random.Random) -> str:
        if rng.random() < 0.5:
            text = "".join(rng.choice(_TOKENS) + rng.choice(("", " ", " ")) for _ in range(rng.randrange(1, 20)))
        else:
            text = damaged(rng.choice(_NETWORKS).encode(), rng).decode("utf-8", "replace")
        net = parse(text)
        try:
            written = unparse(net)
        except BadInput:
            return "read"
        assert unparse(parse(written)) == written, f"{text!r} is written as {written!r}, which reads as another"
        return "read"

    return case


def _picture(rng: random.Random) -> tuple[str, bytes]:
    """A picture in any format and mode, its sides sometimes absurd."""
    sides = rng.choice(((7, 5), (1, 1), (64, 3), (5000, 1), (1, 5000), (33, 40)))
    kind, mode = rng.choice(
        (
            ("PNG", "RGB"), ("PNG", "P"), ("PNG", "I;16"), ("PNG", "RGBA"), ("PNG", "1"), ("JPEG", "RGB"), ("JPEG", "L"),
            ("JPEG", "CMYK"), ("BMP", "RGB"), ("GIF", "P"), ("TIFF", "F"), ("TIFF", "I"), ("TIFF", "LA"), ("WEBP", "RGB"),
            ("PPM", "RGB"), ("PPM", "L"),
        )
    )  # fmt: skip
    out = io.BytesIO()
    PIL.Image.effect_noise(sides, 80).convert("L").convert(mode).save(out, kind)
    return rng.choice(sorted(SUFFIXES)), out.getvalue()


def _pictures(folder: Path) -> Case:
    def case(rng: random.Random) -> str:
        suffix, content = _picture(rng)
        path = folder / f"picture{suffix}"
        path.write_bytes(damaged(content, rng) if rng.random() < 0.9 else content)
        try:
            images = load(f"folder:{folder}", count=1, size=rng.choice((None, 1, 8, (4, 9)))).images
        finally:
            path.unlink()
        assert images.isfinite().all(), "pixels that are not numbers"
        return "read"

    return case


def _array(rng: random.Random) -> tuple[str, bytes]:
    numbers = np.random.default_rng(rng.randrange(2**32))
    shape = rng.choice(((3, 4), (2, 5, 6), (2, 4, 4, 3), (2, 1, 4, 4), (1, 0), (0, 3), (2, 3, 4, 5, 6), (4,), ()))
    dtype = rng.choice(("u1", "<u2", ">f4", "f8", "f2", "i8", "?", "c8", "S3", "O"))
    array = np.asarray(numbers.integers(0, 2, shape)).astype(dtype)
    out = io.BytesIO()
    kind = rng.choice(("npy", "npz", "npz", "idx", "gz"))
    if kind == "npy":
        np.save(out, array)
    elif kind == "npz":
        (np.savez if rng.random() < 0.5 else np.savez_compressed)(
            out, x=array, **({"y": array} if rng.random() < 0.3 else {})
        )
    else:
        axes = (
            array.shape
            if rng.random() < 0.7
            else tuple(rng.choice((1, 2, 2**31, 2**32 - 1)) for _ in range(rng.randrange(256)))
        )
        head = struct.pack(f">BBBB{len(axes)}I", 0, 0, rng.choice((8, 9, 11, 13, 14)), len(axes), *axes)
        content = head + rng.randbytes(rng.choice((0, 10, 500)))
        return "idx", gzip.compress(content) if kind == "gz" else content
    return "npz", out.getvalue()


def _arrays(folder: Path) -> Case:
    def case(rng: random.Random) -> str:
        kind, content = _array(rng)
        path = folder / "array"
        path.write_bytes(damaged(content, rng) if rng.random() < 0.9 else content)
        key = rng.choice(("", "", ":x", ":y", ":no"))
        images = load(f"{kind}:{path}{key}", count=1, size=rng.choice((None, None, 4))).images
        assert images.isfinite().all(), "numbers that are not finite"
        return "read"

    return case


TARGETS = (
    Target(
        "language",
        "texts of the architecture language",
        "a network that reads back as written, or a refusal",
        _language,
    ),
    Target("pictures", "damaged pictures, 7 formats, 12 modes", "finite pixels, or a refusal", _pictures),
    Target("arrays", "damaged .npy, .npz, idx and gzipped idx files", "finite numbers, or a refusal", _arrays),
)
