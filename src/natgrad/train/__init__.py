"""Training: steps, runs, and what they leave behind."""

from natgrad.train.deterministic import lbfgs as lbfgs, line_search as line_search
from natgrad.train.history import History as History, Record as Record
from natgrad.train.loop import (
    Fitted as Fitted,
    run as run,
)
from natgrad.train.rules import Rule as Rule, in_turn as in_turn
from natgrad.train.trackers import MLflow as MLflow, TensorBoard as TensorBoard
