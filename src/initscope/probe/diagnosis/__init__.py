"""From what was measured to what was found: each file looks for one family of mistakes and names where they happen."""

from initscope.probe.diagnosis.case import Case, DataFacts, Judgement
from initscope.probe.diagnosis.judging import judge

__all__ = ["Case", "DataFacts", "Judgement", "judge"]
