"""`load` and `load_pairs`: a name and a few numbers in, images or zipped pairs of images out."""

from __future__ import annotations

import difflib
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from initscope.data import arrays, folder, gaussian, idx, leaves, photos, remote, shapes
from initscope.data.pixels import fit, normalise, with_channels
from initscope.data.request import Request, check_bytes, check_memory, check_numbers, make_request
from initscope.data.sets import Images, Pairs
from initscope.data.store import Store
from initscope.errors import BadInput

# Sources that can make any number of images: what follows the colon and the request in, images and a description out.
_ENDLESS: dict[str, Callable[[str, Request], tuple[Tensor, str]]] = {
    "photos": lambda rest, request: (
        photos.make(_plain("photos", rest, request)),
        "crops of scikit-image's photographs",
    ),
    "gaussian": lambda rest, request: (gaussian.make(gaussian.parse(rest), request), gaussian.parse(rest).words),
    "dead-leaves": lambda rest, request: (
        leaves.make(_plain("dead-leaves", rest, request)),
        "dead leaves: occluding discs, power-law radii",
    ),
    "shapes": lambda rest, request: (shapes.make(rest, request), f"binary images of {rest or 'convex bodies'}"),
}
# Sources that hold a fixed number of images.
_STORED: dict[str, Callable[[str], Store]] = {
    "folder": folder.open_folder,
    "npz": arrays.open_npz,
    "idx": idx.open_idx,
    "torchvision": remote.open_torchvision,
    "hf": remote.open_hf,
}
_PAIR_BYTES = 200  # of two indices while pairs are told apart
FORMS = (
    "photos",
    "gaussian[:CORRELATION[:MEAN]]",
    "dead-leaves",
    "shapes[:KIND]",
    "folder:PATH",
    "npz:PATH[:KEY]",
    "idx:PATH",
    "torchvision:NAME[:ROOT]",
    "hf:NAME[:SPLIT]",
)


def load(
    name: str,
    *,
    count: int,
    size: int | tuple[int, int] | None = None,
    channels: int | None = None,
    seed: int = 0,
    centre: bool = False,
    standardise: bool = False,
) -> Images:
    """A set of images by name (the forms are in `FORMS`), the same for the same arguments.

    `size`: one side or (height, width); generators make 32 x 32 without it, files keep their own size. Files are
    scaled until they cover `size` and cropped at the centre; without `channels`, grey among colour becomes colour.
    Stored images are drawn without replacement. `centre` subtracts the mean of each channel over the set, `standardise`
    divides by its standard deviation as well.

    >>> load("photos", count=4, size=16).images.shape
    torch.Size([4, 3, 16, 16])
    """
    request = make_request(count, size, channels, seed)
    kind, rest = split_name(name)
    if kind in _ENDLESS:
        images, words = _ENDLESS[kind](rest, request)
    else:
        store = _STORED[kind](rest)
        if request.count > store.total:
            problem = f"{request.count} images asked for, {store.total} there"
            raise BadInput(name, problem, f"use count={store.total} or less")
        check_bytes(name, f"the places of {store.total} images", 8 * store.total, "use a file with fewer images")
        images, words = _read(store, request, request.random().permutation(store.total)[: request.count]), store.words
    return Images(normalise(images, centre=centre, standardise=standardise), name, words)


def load_pairs(
    name: str,
    *,
    pairs: int,
    size: int | tuple[int, int] | None = None,
    channels: int | None = None,
    seed: int = 0,
    centre: bool = False,
    standardise: bool = False,
) -> Pairs:
    """Zipped pairs of two different images by name; the arguments are those of `load`.

    Stored images are used once each while they last; after that no pair of images comes twice. `gaussian:0.5` gives
    every pair that correlation, plain `gaussian` spreads the correlations evenly over [-1, 1].

    >>> load_pairs("gaussian", pairs=3, size=8).correlation
    tensor([-1.,  0.,  1.], dtype=torch.float64)
    """
    request = make_request(pairs, size, channels, seed)
    kind, rest = split_name(name)
    correlation: Tensor | None = None
    check_bytes("pairs", f"{pairs} pairs", _PAIR_BYTES * request.count, "ask for fewer pairs")
    if kind == "gaussian":
        make_request(2 * pairs, size, channels, seed).shape(3)
        law = gaussian.parse(rest)
        x, y, correlation = gaussian.make_pairs(law, request)
        words = law.words if law.correlation is not None else f"{law.words}, correlations spread over [-1, 1]"
    elif kind in _ENDLESS:
        images, words = _ENDLESS[kind](rest, make_request(2 * pairs, size, channels, seed))
        x, y = images[0::2], images[1::2]
    else:
        store = _STORED[kind](rest)
        index = _pair_indices(name, store.total, pairs, request.random())
        used, place = np.unique(index, return_inverse=True)
        images, words = _read(store, request, used), store.words
        x, y = (images[torch.from_numpy(side)] for side in place.reshape(index.shape).T)
    both = normalise(torch.cat([x, y]), centre=centre, standardise=standardise)
    return Pairs(both[:pairs], both[pairs:], name, words, correlation)


def split_name(name: str) -> tuple[str, str]:
    if not isinstance(name, str):
        raise BadInput("data", f"got {name!r}, expected a name", "pass for example 'photos'")
    kind, _, rest = name.partition(":")
    if kind in _ENDLESS:
        return kind, rest
    if kind not in _STORED:
        near = difflib.get_close_matches(kind.lower(), [*_ENDLESS, *_STORED], n=1)
        hint = f"did you mean {near[0]!r}? Names" if near else "names"
        raise BadInput("data", f"unknown name {name!r}", f"{hint} are {', '.join(FORMS)}")
    if not rest:
        form = next(form for form in FORMS if form.startswith(f"{kind}:"))
        raise BadInput("data", f"{name!r} names no data", f"write {form}")
    return kind, rest


def _plain(kind: str, rest: str, request: Request) -> Request:
    if rest:
        raise BadInput("data", f"{kind!r} takes nothing after a colon, got {rest!r}", f"write {kind}")
    return request


def _read(store: Store, request: Request, index: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Tensor:
    if request.size is not None:
        check_memory(len(index), request.channels or 3, *request.size)
    elif store.numbers:
        check_numbers(f"{len(index)} images of {store.numbers} numbers", len(index) * store.numbers)
    check_bytes(store.place, "the numbers of one image", 3 * 4 * store.numbers, "store smaller images")
    shaped: list[Tensor] = []
    numbers = 0
    for image in store.read([int(i) for i in index]):
        if image.dim() == 2:
            if request.size is not None or request.channels is not None:
                raise BadInput(store.place, "holds vectors, not images", "leave size= and channels= out")
            shaped.append(image)
        else:
            height, width = request.size or image.shape[-2:]
            numbers += (request.channels or image.shape[1]) * height * width
            check_numbers(f"{len(shaped) + 1} of {len(index)} images", numbers)  # files have any size
            shaped.append(fit(with_channels(store.place, image, request.channels), request.size))
    if {image.shape[1] for image in shaped if image.dim() == 4} == {1, 3}:
        # Photo folders mix grey files among colour ones; grey loses nothing when it is repeated.
        shaped = [with_channels(store.place, image, 3) for image in shaped]
    shapes_seen = sorted({tuple(image.shape[1:]) for image in shaped})
    if len(shapes_seen) > 1:
        some = " and ".join(str(shape) for shape in shapes_seen[:2])
        raise BadInput(store.place, f"images of different shapes {some}", "pass size= (and channels=)")
    return torch.cat(shaped)


def _pair_indices(
    place: str, total: int, pairs: int, random: np.random.Generator
) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """(pairs, 2) indices of different images: each image once while they last, then never the same pair twice."""
    possible = total * (total - 1) // 2
    if pairs > possible:
        problem = f"{total} images make {possible} different pairs, {pairs} asked for"
        raise BadInput(place, problem, f"use pairs={possible} or less" if possible else "give at least two images")
    chosen: dict[tuple[int, int], None] = {}
    # Whole shuffles use every image equally often; once most pairs are taken they would mostly repeat.
    while len(chosen) < min(pairs, max(possible // 2, total // 2)):
        order = random.permutation(total)
        for first, second in zip(order[0 : total - 1 : 2], order[1::2], strict=True):
            chosen.setdefault((min(first, second), max(first, second)))
    if len(chosen) < pairs:
        left = [(i, j) for i in range(total) for j in range(i + 1, total) if (i, j) not in chosen]
        for pick in random.permutation(len(left))[: pairs - len(chosen)]:
            chosen.setdefault(left[pick])
    index = np.array(list(chosen)[:pairs], dtype=np.int64).reshape(pairs, 2)
    # The smaller index stood first above only to recognise a pair: which image is x is drawn anew.
    flip = random.random(pairs) < 0.5
    index[flip] = index[flip, ::-1]
    return index
