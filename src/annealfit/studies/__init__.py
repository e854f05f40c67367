"""Studies: the paper's experiments, samplers compared, what fits a chip, a library of instances, the report.

The library never imports this package; the command line does. A `RunSpec` says what to run (`records`), `execute`
runs it, `training_run` fits and measures, and the tables and figures of `report` are made from stored records alone.
"""

from typing import TYPE_CHECKING

from annealfit._support.lazy import lazy_exports

if TYPE_CHECKING:
    from annealfit.studies.records import Record, RunSpec
    from annealfit.studies.training_run import Prepared, TrainingRun, run_training

__all__ = ["Prepared", "Record", "RunSpec", "TrainingRun", "run_training"]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "Prepared": "training_run",
        "Record": "records",
        "RunSpec": "records",
        "TrainingRun": "training_run",
        "run_training": "training_run",
    },
)
