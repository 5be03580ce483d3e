"""Style transfer with random networks: the features of Conv1 are optimised over the stages after it, and decoded."""

from initscope.images.style.judge import Judgement, judge_style
from initscope.images.style.stylizing import Stylized, stylize

__all__ = ["Judgement", "Stylized", "judge_style", "stylize"]
