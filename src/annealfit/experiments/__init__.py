"""Experiments: runs of methods on data sets, and what they leave on disk."""

from annealfit.experiments.training_run import MethodResult, TrainingRun, run_training

__all__ = ["MethodResult", "TrainingRun", "run_training"]
