"""DC Theorems 2, 6 and 8 and Lemma 7: how far a finite network is from its limit."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from initscope.bounds import angle_to_limit, convergence_image
from initscope.geometry import generator
from initscope.layers import Conv, L2Pool, ReLU, Upsample
from initscope.networks import Sequential
from initscope.papers.item import Check, Desk, Item, Outcome, Sampled, claim, undecided
from initscope.papers.random_cnn.limit import conv, draw
from initscope.papers.random_cnn.sampling import angles

SET = "imagenet224"
DELTAS = (0.05, 0.5)


def cnn_dcn(width: int) -> Sequential:
    """Convolution, l2 pooling, convolution, upsampling with zeros, convolution."""
    return Sequential(*conv(width), L2Pool(2), *conv(width), Upsample(2, "zeros"), *conv(width))


def disjoint(width: int) -> Sequential:
    """Windows of equal size that do not overlap: what Lemma 7 asks for."""
    layers = [Conv(width, 2, 2, padding="valid"), ReLU(), L2Pool(2), Conv(width, 1, padding="valid"), ReLU()]
    return Sequential(*layers)


def sines(net: Sequential, images: Tensor, networks: int, seed: int) -> Tensor:
    """(networks, n): the sine of the angle between output and limit."""
    limit = convergence_image(net, images).image
    return torch.stack([angles(draw(net, images, seed, number), limit).sin() for number in range(networks)])


def covers(says: str, found: Tensor, bound: Tensor, delta: float) -> Check:
    """The share of networks beyond the bound, worst over images, is at most delta: it fails where that is ruled out."""
    shares = (found > bound).double().mean(0)
    worst = float(shares.max())
    count = len(found)
    sampled = Sampled(worst, math.sqrt(max(worst * (1 - worst), 1 / count) / count), count)
    low = sampled.interval()[0]
    if bool((bound >= 1).all()):
        return undecided(
            f"{says}: the bound says something",
            f"a bound of {float(bound.min()):.2f} on a sine says nothing",
            exact=float(bound.min()),
        )
    return claim(says, low <= delta, exact=float(bound.min()), sampled=sampled)


def run_theorem6(desk: Desk) -> Outcome:
    images = desk.images(SET, count=desk.pick(3, 6), size=16, channels=3).images.double()
    networks, widths = desk.pick(60, 300), (64, 256, 1024)
    checks, data = [], {}
    for n in widths:
        net = Sequential(*conv(n))
        found = sines(net, images, networks, desk.seed)
        desk.progress(widths.index(n) + 1, len(widths))
        for delta in DELTAS:
            bounds = angle_to_limit(net, images, delta)
            says = f"N = {n}: sin Θ above √(K1/(Nδ)) in at most {delta:.0%} of networks"
            checks.append(covers(says, found, bounds.theorem.value, delta))
        formula = math.sqrt((math.pi - 1) / (n * DELTAS[0]))
        data[str(n)] = {"root_mean_square": float(found.square().mean().sqrt()), "theorem": formula}
    return Outcome(tuple(checks), data)


def run_multilayer(desk: Desk, printed: bool) -> Outcome:
    """Theorem 2 (λ of z*) or Theorem 8 (λ of z*²)."""
    images = desk.images(SET, count=desk.pick(2, 4), size=16, channels=3).images.double()
    networks = desk.pick(30, 80)
    cases = {"disjoint windows": disjoint, "conv, pool, conv, up, conv": cnn_dcn}
    checks, data = [], {}
    for number, (name, make) in enumerate(cases.items()):
        net = make(256)
        found = sines(net, images, networks, desk.seed)
        desk.progress(number + 1, len(cases))
        wide = _first_saying(make, images)
        for delta in DELTAS:
            bounds = angle_to_limit(net, images, delta)
            says = f"{name}, N = 256: sin Θ above the bound in at most {delta:.0%} of networks"
            checks.append(covers(says, found, bounds.theorem.value, delta))
            sharper = f"{name}, N = 256: the same for √(E sin²Θ/δ), without λ and routes"
            checks.append(covers(sharper, found, bounds.sharper.value, delta))
        data[name] = {
            "root_mean_square": float(found.square().mean().sqrt()),
            "theorem": float(angle_to_limit(net, images, DELTAS[0]).theorem.value.max()),
            "sharper": float(angle_to_limit(net, images, DELTAS[0]).sharper.value.max()),
            "first_width_that_says_something": wide,
        }
    if printed:
        checks.append(_step_with_z())
    checks.append(_one_route())
    return Outcome(tuple(checks), data)


def _first_saying(make: object, images: Tensor) -> int:
    """The smallest power of two at which the theorem's bound is below 1 for δ = 0.05."""
    assert callable(make)
    width = 1
    while float(angle_to_limit(make(width), images, DELTAS[0]).theorem.value.max()) >= 1:
        width *= 2
    return width


def lemma7(x: Tensor, window: int) -> tuple[Tensor, Tensor]:
    """|φ(x)|² and r (|x|² - |ε(x)|²) for windows of `window` entries that do not overlap, x (n, windows · window)."""
    parts = x.view(len(x), -1, window)
    inner = parts.mean(2, keepdim=True)
    left = parts.sum(2).square().sum(1)
    right = window * (x.square().sum(1) - (parts - inner).square().flatten(1).sum(1))
    return left, right


def run_lemma7(desk: Desk) -> Outcome:
    random = generator(desk.seed, 7)
    worst = 0.0
    for window in (2, 4, 9):
        x = torch.rand(200, 36 * window, generator=random, dtype=torch.float64)
        left, right = lemma7(x, window)
        worst = max(worst, float(((left - right) / left).abs().max()))
    says = "|φ(x)|² = r(|x|² - |ε(x)|²) for disjoint windows of equal size: largest relative error"
    return Outcome((claim(says, worst < 1e-12, exact=worst), _one_route()), {"worst": worst})


def _one_route() -> Check:
    """1x1 filters and then 3x3: one route between two pixels, but windows that overlap, and |φ(x)|² > r |x|²."""
    x = torch.ones(1, 1, 8, 8, dtype=torch.float64)
    sums = torch.nn.functional.avg_pool2d(x, 3, 1, padding=1, divisor_override=1)
    ratio = float(sums.square().sum() / (9 * x.square().sum()))
    why = "|φ(x)|² is larger than r|x|² where 3x3 windows overlap, though there is one route between two pixels"
    return claim(
        "one route between two pixels is enough for Lemma 7: |φ(x)|²/(r|x|²) at most 1",
        ratio <= 1,
        exact=ratio,
        why=why,
    )


def _step_with_z() -> Check:
    """sin θ' <= λ sin β with λ from z* instead of z*²: the largest ratio of the two sides over many vectors."""
    random = torch.Generator().manual_seed(2)
    worst = 0.0
    for power in (1, 4, 8):
        squares = torch.rand(400, 16, generator=random, dtype=torch.float64) ** power  # z*²
        other = squares * torch.rand(400, 16, generator=random, dtype=torch.float64)
        roots = squares.sqrt()
        inner = roots.view(-1, 4, 4).mean(2, keepdim=True)
        spread = (roots.view(-1, 4, 4) - inner).square().flatten(1).sum(1) / roots.square().sum(1)
        factor = 1 / (1 - spread).sqrt()  # λ as Theorem 2 prints it
        before = angles(other[:, None], squares[:, None]).sin()
        after = angles(other.view(-1, 4, 4).sum(2)[:, None], squares.view(-1, 4, 4).sum(2)[:, None]).sin()
        worst = max(worst, float((after / (factor * before)).max()))
    why = "λ has to be taken of z*², as Theorem 8 has it"
    return claim(
        "λ from z*, as Theorem 2 prints it, bounds one step: sin θ'/(λ sin β) at most 1",
        worst <= 1,
        exact=worst,
        why=why,
    )


ITEMS = (
    Item(
        "random-cnn/thm2", "Theorem 2: multilayer variance",
        "The angle to the limit is small with high probability when there are many channels.",
        lambda desk: run_multilayer(desk, printed=True), (SET,),
    ),
    Item(
        "random-cnn/thm6", "Theorem 6: variance of one layer", "sin Θ ≤ √(K1/(Nδ)) with probability 1 - δ.",
        run_theorem6, (SET,),
    ),
    Item("random-cnn/lemma7", "Lemma 7: window sums", "|φ(x)|² = r k² (|x|² - |ε(x)|²).", run_lemma7),
    Item(
        "random-cnn/thm8", "Theorem 8: multilayer variance, appendix",
        "As Theorem 2, with λ taken of the squares.", lambda desk: run_multilayer(desk, printed=False), (SET,),
    ),
)  # fmt: skip
