"""How deep post-norm transformers may be: what is left of the input's variance, and whether they train.

    python benchmarks/post_norm.py [--page docs/check.md]

PyTorch's own encoder (norm_first=False), width 64, 4 heads, on random tokens with random labels that are to be learned by
heart: 100 steps of Adam at 1e-3 on one batch of 16 x 12. The limits `kept` of `initscope.probe.Thresholds` lie between the
depths that train and those that do not. Takes about four minutes on two cores.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from initscope.probe import Thresholds, check

DEPTHS = (6, 12, 18, 24, 36, 60)
CLASSES, STEPS, RATE = 10, 100, 1e-3
START, END = "<!-- post-norm -->", "<!-- /post-norm -->"


def encoder(depth: int) -> nn.Module:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
    stack = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
    return nn.Sequential(nn.Linear(32, 64), stack, nn.Linear(64, CLASSES))


def data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(16, 12, 32, generator=generator), torch.randint(CLASSES, (16, 12), generator=generator)


def trained(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """The loss after the last step."""
    optimizer = torch.optim.Adam(model.parameters(), RATE)
    for _ in range(STEPS):
        optimizer.zero_grad()
        F.cross_entropy(model(x).flatten(0, 1), y.flatten()).backward()
        optimizer.step()
    with torch.no_grad():
        return float(F.cross_entropy(model(x).flatten(0, 1), y.flatten()))


def row(depth: int) -> str:
    x, y = data()
    # A limit of 1 on what is kept makes every network tell its number.
    found = check(encoder(depth), (x, y), seeds=1, theory=False, thresholds=Thresholds(kept=(1.0, 0.0))).findings
    kept = next((f.value for f in found if f.kind == "deep-post-norm"), None)
    verdict = check(encoder(depth), (x, y), seeds=1, theory=False).verdict
    loss = trained(encoder(depth), x, y)
    shown = "-" if kept is None else f"{kept:.2g}"
    return f"| {depth} | {2 * depth} | {shown} | {verdict} | {loss:.3f} |"


def table() -> str:
    lines = [
        "| layers | normalized sums | variance kept | verdict | loss after 100 steps |",
        "| --- | --- | --- | --- | --- |",
    ]
    for depth in DEPTHS:
        lines.append(row(depth))
        print(lines[-1], file=sys.stderr, flush=True)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    made = table()
    print(made)
    if options.page is not None:
        text = options.page.read_text()
        before, rest = text.split(START)
        options.page.write_text(f"{before}{START}\n{made}\n{END}{rest.split(END)[1]}")


if __name__ == "__main__":
    main()
