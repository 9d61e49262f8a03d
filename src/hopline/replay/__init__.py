"""Replay: what a capture saw begin, played again into a network. Needs the extra `columnar`: numpy and pyarrow."""

from hopline.replay.outcome import Outcome, difference
from hopline.replay.plan import Plan, make_plan
from hopline.replay.player import Player
from hopline.replay.report import Report, Result, Summary
from hopline.replay.script import Play, Script

__all__ = ["Outcome", "Plan", "Play", "Player", "Report", "Result", "Script", "Summary", "difference", "make_plan"]
