"""`--batch file.py:function`: the user's own code makes the batch, for models with several inputs or with targets."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from initscope.cli.models import find_object
from initscope.errors import BadInput

if TYPE_CHECKING:
    import torch

PLACE = "--batch"
BATCH_HELP = (
    "package.module:function or file.py:function without arguments that returns the batch: a tensor, a tuple of inputs, a "
    "dict of keyword arguments, (inputs, targets) or a DataLoader; instead of --data."
)


def users_batch(name: str, device: torch.device) -> Any:
    """What the named function returns, on the device; call it inside `users_code`."""
    found = find_object(name, PLACE)
    if not callable(found):
        problem = f"{name} is a {type(found).__name__}, expected a function that returns the batch"
        raise BadInput(PLACE, problem, "name a function without arguments")
    _check_arguments(found, name)
    try:
        batch = found()
    except BadInput:
        raise
    except (Exception, SystemExit) as error:
        said = next(iter(str(error).strip().splitlines()), "")
        problem = f"{name} raised {type(error).__name__}{': ' + said if said else ''}"
        raise BadInput(PLACE, problem, "call it by itself to see where") from error
    if hasattr(batch, "__next__"):  # an iterator can be gone through once, and the batch is used several times
        batch = next(batch, None)
    return _on(batch, device)


def shape_of(batch: Any) -> tuple[int, ...]:
    """The shape of one sample of the first input, for built-in models."""
    from torch import Tensor

    from initscope.probe.safekeeping import same_randomness
    from initscope.probe.trace import tensors_in

    first = batch
    if not isinstance(batch, Tensor | dict | tuple | list):
        with same_randomness(batch):
            first = next(iter(batch), None) if hasattr(batch, "__iter__") else None
    tensor = next((t for t in tensors_in(first) if t.ndim > 0), None)
    return () if tensor is None else tuple(tensor.shape[1:])


def _check_arguments(function: Any, name: str) -> None:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return
    free = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [p.name for p in parameters if p.default is p.empty and p.kind not in free]
    if needed:
        problem = f"{name} needs arguments ({', '.join(needed)}), expected something to call without any"
        raise BadInput(PLACE, problem, "write a function without arguments that returns the batch, and name that")


def _on(batch: Any, device: torch.device) -> Any:
    from torch import Tensor
    from torch.utils._pytree import tree_map_only

    if device.type == "cpu":
        return batch
    if isinstance(batch, Tensor | dict | tuple | list):
        return tree_map_only(Tensor, lambda t: t.to(device), batch)
    return _MovedLoader(batch, device) if hasattr(batch, "__iter__") else batch


class _MovedLoader:
    """A loader whose batches are moved to a device; all else is the loader's own."""

    def __init__(self, loader: Any, device: torch.device) -> None:
        self._loader, self._device = loader, device

    def __iter__(self) -> Iterator[Any]:
        return (_on(batch, self._device) for batch in self._loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
