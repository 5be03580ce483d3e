"""Loads rich for the first time: it draws from Python's generator while it is imported, and that is the user's."""

import random

_state = random.getstate()
import rich.console  # noqa: E402, F401  between the two states

random.setstate(_state)
