"""Classification by kernels, against solving the same equations the long way."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import initscope as iscope
from initscope.errors import BadInput


def points(count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Three clouds in the plane, overlapping a little."""
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(3, (count,), generator=g)
    centres = torch.tensor([[0.0, 0.0], [2.5, 0.0], [0.0, 2.5]])
    return (centres[labels] + torch.randn(count, 2, generator=g)).double(), labels


def radial(x: Tensor, y: Tensor) -> Tensor:
    return torch.exp(-torch.cdist(x, y).square() / 2)


def test_scores_solve_the_equations() -> None:
    (x, labels), (new, truth) = points(60), points(40, seed=1)
    found = iscope.kernel_classifier(radial(x, x), labels, radial(new, x), truth, noise=0.01)
    targets = (labels[:, None] == torch.arange(3)).double() - 1 / 3
    expected = radial(new, x) @ torch.linalg.solve(radial(x, x) + 0.01 * torch.eye(60).double(), targets)
    torch.testing.assert_close(found.scores, expected, rtol=1e-9, atol=1e-9)
    assert torch.equal(found.predictions, expected.argmax(1))
    share = float((expected.argmax(1) == truth).double().mean())
    assert found.accuracy == share
    assert found.error == pytest.approx(1 - share)
    assert found.stderr == pytest.approx(math.sqrt(share * (1 - share) / 40))
    assert (found.jitter.added, found.jitter.failures) == (0.0, 0)


def test_leaving_one_out_is_exact() -> None:
    x, labels = points(25, seed=2)
    kernel = radial(x, x)
    found = iscope.kernel_classifier(kernel, labels, kernel[:1], noise=0.1)
    wrong = 0
    for i in range(25):
        rest = [j for j in range(25) if j != i]
        targets = (labels[rest][:, None] == torch.arange(3)).double() - 1 / 3
        shifted = kernel[rest][:, rest] + 0.1 * torch.eye(24).double()
        wrong += int((kernel[i, rest] @ torch.linalg.solve(shifted, targets)).argmax()) != int(labels[i])
    assert 0 < wrong < 25
    assert found.left_out_error == pytest.approx(wrong / 25)
    assert found.accuracy is None
    assert found.error is None


def test_the_noise_with_the_least_error_is_taken() -> None:
    x, labels = points(80, seed=3)
    kernel, noises = radial(x, x), [1e-9, 1e-3, 1e-1, 10.0]
    errors = [iscope.kernel_classifier(kernel, labels, kernel, noise=s).left_out_error for s in noises]
    found = iscope.kernel_classifier(kernel, labels, kernel, noise=noises)
    assert found.left_out_error == min(errors)
    assert found.noise == noises[errors.index(min(errors))]
    assert len(set(errors)) > 1


def test_jitter_is_added_and_said() -> None:
    x, labels = points(30, seed=4)
    twice, both = torch.cat([x, x]), torch.cat([labels, labels])
    kernel = radial(twice, twice)
    kernel = kernel - 3e-9 * torch.eye(60).double()  # the smallest eigenvalue is -3e-9
    found = iscope.kernel_classifier(kernel, both, radial(x, twice), labels)
    assert found.jitter.added == pytest.approx(1e-8, rel=1e-6)
    assert found.jitter.failures == 7  # with 0, and with 1e-14, 1e-13, ..., 1e-9
    with pytest.raises(BadInput, match="not positive semidefinite"):
        iscope.kernel_classifier(-kernel, both, kernel)


def test_classes_keep_their_names() -> None:
    x, labels = points(40, seed=5)
    found = iscope.kernel_classifier(radial(x, x), labels * 10 + 7, radial(x, x), labels * 10 + 7)
    assert found.classes.tolist() == [7, 17, 27]
    assert found.accuracy == 1.0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kernel": torch.ones(3, 4)}, r"kernel: shape \(3, 4\)"),
        ({"labels": torch.zeros(4)}, "whole numbers"),
        ({"labels": torch.zeros(3, dtype=torch.long)}, r"expected \(4,\)"),
        ({"cross": torch.ones(2, 3)}, r"expected \(m, 4\)"),
        ({"truth": torch.zeros(3, dtype=torch.long)}, r"expected \(2,\)"),
        ({"cross": torch.full((2, 4), math.nan)}, "NaN"),
        ({"kernel": torch.eye(4) + torch.ones(4, 4).triu(1)}, "not symmetric"),
        ({"noise": -1.0}, "not negative"),
        ({"noise": []}, "not negative"),
    ],
)
def test_bad_input(change: dict[str, object], words: str) -> None:
    good = {"kernel": torch.eye(4), "labels": torch.arange(4), "cross": torch.ones(2, 4), "truth": torch.arange(2)}
    with pytest.raises(BadInput, match=words):
        iscope.kernel_classifier(**{**good, **change})  # type: ignore[arg-type]
