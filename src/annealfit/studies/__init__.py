"""Studies: the paper's experiments, samplers compared, what fits a chip, a library of instances, the report.

The library never imports this package; the command line does. A `RunSpec` says what to run (`records`), `execute`
fits and measures, and the tables and figures of `report` are made from stored records alone.
"""

from typing import TYPE_CHECKING

from annealfit._support.lazy import lazy_exports

if TYPE_CHECKING:
    from annealfit.studies.execute import Prepared, TrainingRun, run_training
    from annealfit.studies.records import Record, RunSpec

__all__ = ["Prepared", "Record", "RunSpec", "TrainingRun", "run_training"]

_PLACES = dict.fromkeys(("Prepared", "TrainingRun", "run_training"), "execute")
__getattr__, __dir__ = lazy_exports(__name__, {**_PLACES, "Record": "records", "RunSpec": "records"})
