"""Hostile inputs: texts of the architecture language, pictures, arrays."""

from __future__ import annotations

import gzip
import io
import math
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


_LAYERS = (
    "conv3", "conv1(4)", "dense", "dense(7, bias=0.5)", "relu", "tanh", "gelu", "erf", "sin", "sign", "bn", "ln", "gap",
    "flatten", "3x(conv3 relu)", "res(relu conv3)", "cat(relu, tanh conv3)", "dropout(0.5)", "avgpool2", "maxpool2",
)  # fmt: skip


def _language(folder: Path) -> Case:
    def case(rng: random.Random) -> str:
        kind = rng.randrange(3)
        if kind == 0:
            text = " ".join(rng.choice(_LAYERS) for _ in range(rng.randrange(1, 12)))
        elif kind == 1:
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
    """A file of numbers in any format, its shape, type or header sometimes strange."""
    shapes = ((3, 4), (2, 5, 6), (2, 4, 4, 3), (2, 1, 4, 4))
    shape = rng.choice(((1, 0), (0, 3), (2, 3, 4, 5, 6), (4,), ()) if rng.random() < 0.2 else shapes)
    kind = rng.choice(("npy", "npz", "packed", "idx", "gz"))
    if kind in ("idx", "gz"):
        strange = tuple(rng.choice((1, 2, 2**31, 2**32 - 1)) for _ in range(rng.randrange(256)))
        axes = strange if rng.random() < 0.2 else shape
        code, size = rng.choice(((8, 1), (9, 1), (11, 2), (13, 4), (14, 8)))
        head = struct.pack(f">BBBB{len(axes)}I", 0, 0, code, len(axes), *axes)
        content = head + bytes(size * min(math.prod(axes), 1000))
        return "idx", gzip.compress(content) if kind == "gz" else content
    dtype = rng.choice(("c8", "S3", "O") if rng.random() < 0.2 else ("u1", "<u2", ">f4", "f8", "f2", "i8", "?"))
    array = np.asarray(np.random.default_rng(rng.randrange(2**32)).integers(0, 2, shape)).astype(dtype)
    out = io.BytesIO()
    if kind == "npy":
        np.save(out, array)
    else:
        (np.savez if kind == "npz" else np.savez_compressed)(out, x=array)
    return "npz", out.getvalue()


def _arrays(folder: Path) -> Case:
    def case(rng: random.Random) -> str:
        kind, content = _array(rng)
        path = folder / "array"
        path.write_bytes(damaged(content, rng) if rng.random() < 0.7 else content)
        key = rng.choice(("", "", "", ":x", ":no")) if kind == "npz" else ""
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
    Target("pictures", "damaged pictures, 7 formats, 10 modes", "finite pixels, or a refusal", _pictures),
    Target("arrays", "damaged .npy, .npz, idx and gzipped idx files", "finite numbers, or a refusal", _arrays),
)
