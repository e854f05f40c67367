"""Experiments: runs of methods on data sets, and what they leave on disk."""

from annealfit.experiments.prepared import Prepared
from annealfit.experiments.records import Record
from annealfit.experiments.training_run import TrainingRun, run_training

__all__ = ["Prepared", "Record", "TrainingRun", "run_training"]
