"""Losses by name, and targets that do not fit: one clear error each, in the words of the caller."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from initscope import check, fix
from initscope.errors import BadInput
from initscope.probe.batches import Batch, total_loss
from initscope.probe.losses import LOSSES, check_classes, named_loss

N, CLASSES = 8, 4
X = torch.randn(N, 6, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(N) % CLASSES


def model(outputs: int = CLASSES) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, outputs))


def value(output: Any, target: Any, loss: Any = None) -> tuple[float, str]:
    found, name = total_loss(output, Batch((X,), {}, target), loss, 0)
    return float(found), name


def test_names_use_the_targets_that_were_given() -> None:
    scores = model()(X).detach()
    assert value(scores, LABELS, "cross-entropy") == (
        pytest.approx(float(F.cross_entropy(scores, LABELS))),
        "cross-entropy",
    )
    wanted = torch.randn(N, CLASSES)
    assert value(scores, wanted, "squared-error") == (pytest.approx(float(F.mse_loss(scores, wanted))), "squared-error")


def test_names_without_targets_draw_some_and_say_so() -> None:
    scores = model()(X).detach()
    first, name = value(scores, None, "cross-entropy")
    assert name == "cross-entropy with random targets"
    assert value(scores, None, "cross-entropy")[0] == first, "the same at every call: they can be learned"
    assert value(scores, None, "squared-error")[1] == "squared-error with random targets"
    assert value(scores, LABELS, "random-direction")[1] == "random direction"


@pytest.mark.parametrize(
    ("shape", "labels"),
    [((N, 5, 3, 3), (N, 3, 3)), ((N, 7, 5), (N, 7)), ((N, 5, 7), (N, 7)), ((N, 5), (N,))],
    ids=["image", "sequence", "sequence, classes first", "plain"],
)
def test_the_axis_of_the_classes(shape: tuple[int, ...], labels: tuple[int, ...]) -> None:
    scores = torch.zeros(shape)
    target = torch.zeros(labels, dtype=torch.int64)
    for wanted in (target, target.int(), None):
        if wanted is None and shape == (N, 5, 7):
            continue  # without targets the classes of a sequence are last
        found = value(scores, wanted, "cross-entropy")[0]
        assert found == pytest.approx(torch.tensor(5.0).log().item())


def test_probabilities_are_targets_too() -> None:
    scores = model()(X).detach()
    soft = F.one_hot(LABELS, CLASSES).float()
    assert value(scores, soft, "cross-entropy")[0] == pytest.approx(float(F.cross_entropy(scores, LABELS)))


def test_check_and_fix_take_names() -> None:
    assert check(model(), X, target=LABELS, loss="cross-entropy", seeds=1).loss == "cross-entropy"
    assert check(model(), (X, LABELS), loss="random-direction", seeds=1).loss == "random direction"
    assert fix(model(), X, loss="squared-error", seeds=1).before.loss == "squared-error with random targets"


def test_a_random_direction_cannot_be_learned() -> None:
    with pytest.raises(BadInput, match="training needs targets"):
        fix(model(), (X, LABELS), loss="random-direction", seeds=1, train_steps=2)


def test_one_score_for_two_classes() -> None:
    scores = model(1)(X).detach()
    labels = LABELS % 2
    found, name = value(scores, labels)
    assert name == "binary cross-entropy"
    wanted = F.binary_cross_entropy_with_logits(scores[:, 0], labels.float(), reduction="sum")
    assert found == pytest.approx(float(wanted))
    assert value(scores, LABELS * 10)[1] == "squared error"


WRONG: dict[str, tuple[int, Any, Any, str]] = {
    "labels too high": (4, LABELS + 1, None, "target: labels reach from 1 to 4, the model has 4 outputs: expected 0 to 3; "
                        "number the classes from 0, or give the model 5 outputs"),
    "labels far too high": (4, LABELS * 9, "cross-entropy", "target: labels reach from 0 to 27, the model has 4 outputs: "
                            "expected 0 to 3; check the labels, or give the model 28 outputs"),
    "negative labels": (4, LABELS - 1, "cross-entropy", "target: labels reach from -1 to 2, .*; check the labels$"),
    "torch's own loss": (4, LABELS + 1, nn.CrossEntropyLoss(), "target: labels reach from 1 to 4"),
    "torch's function": (4, LABELS[:5], F.cross_entropy, "target: has 5 entries for a batch of 8 samples"),
    "no labels count": (4, torch.full((N,), -100), "cross-entropy", "target: all labels are -100"),
    "too few": (4, LABELS[:5], None, "target: has 5 entries for a batch of 8 samples; pass one for each sample"),
    "too few by name": (4, LABELS[:5], "cross-entropy", "target: has 5 entries for a batch of 8 samples"),
    "too many values": (4, torch.zeros(9, 4), "squared-error", "target: has 9 entries for a batch of 8 samples"),
    "float labels": (4, LABELS.float(), "cross-entropy", r"target: holds float32 numbers of shape \(8,\), cross-entropy "
                     r'needs whole class numbers; pass target.long\(\), or loss="squared-error"'),
    "bool labels": (4, LABELS > 1, "cross-entropy", "target: holds bool numbers"),
    "a list": (4, LABELS.tolist(), "cross-entropy", r"target: got a list, expected a tensor .*; pass torch.tensor\(...\)"),
    "a number": (4, torch.tensor(3), "cross-entropy", "target: got a single number"),
    "another shape": (4, torch.zeros(N, 3, dtype=torch.int64), "cross-entropy", r"target: has shape \(8, 3\), which does not "
                      r"fit an output of shape \(8, 4\)"),
    "values of another shape": (4, torch.zeros(N, 3), "squared-error", r"target: has shape \(8, 3\), the output has \(8, 4\)"),
    "one class": (1, None, "cross-entropy", "loss: cross-entropy needs two or more classes"),
    "unknown name": (4, None, "croos-entropy", "loss: got 'croos-entropy'; use one of \"random-direction\", "
                     '"cross-entropy", "squared-error", or a function'),
    "no function": (4, None, 3, "loss: got a int, expected a name or a function"),
    "a function that raises": (4, None, lambda output, target: output @ output, "loss: <lambda> raised RuntimeError: "),
    "a function without a tensor": (4, None, lambda output, target: 1.0, "loss: returned a float, expected a tensor"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_one_clear_error(name: str) -> None:
    outputs, target, loss, said = WRONG[name]
    with pytest.raises(BadInput, match=said):
        check(model(outputs), X, target=target, loss=loss, seeds=1)


def test_targets_of_another_kind_are_left_alone() -> None:
    """Boxes of a detector are not one per sample: without a name, a random direction is taken as before."""
    assert value(torch.zeros(N, CLASSES), torch.zeros(3, 6))[1] == "random direction"
    assert value(torch.zeros(N, CLASSES), {"boxes": torch.zeros(3, 6)})[1] == "random direction"
    assert value(torch.zeros(5, N, CLASSES), LABELS)[1] == "random direction", "time comes first"


def test_every_name_is_a_loss() -> None:
    scores = model()(X)
    for name in LOSSES:
        found: Tensor = named_loss(name, 0)(scores, None)
        assert found.ndim == 0
        assert found.requires_grad
    assert check_classes(scores, LABELS) == 1
