"""Experiments: runs of methods on data sets, and what they leave on disk."""

from typing import TYPE_CHECKING

from annealfit.on_use import names_on_use

if TYPE_CHECKING:
    from annealfit.experiments.prepared import Prepared
    from annealfit.experiments.records import Record
    from annealfit.experiments.training_run import TrainingRun, run_training

__all__ = ["Prepared", "Record", "TrainingRun", "run_training"]

__getattr__, __dir__ = names_on_use(
    __name__,
    {"Prepared": "prepared", "Record": "records", "TrainingRun": "training_run", "run_training": "training_run"},
)
