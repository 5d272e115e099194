"""Training: options, histories, and rules of your own."""

from natgrad.train._history import History, Record
from natgrad.train._loop import run
from natgrad.train._options import Options
from natgrad.train._rules import Rule, in_turn
from natgrad.train._signals import stop_on_signals


__all__ = ["Options", "History", "Record", "run", "Rule", "in_turn", "stop_on_signals"]
