"""The run folder: what a run leaves on disk, each file whole or absent."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from annealfit._support.errors import InvalidInputError, choose, require
from annealfit._support.files import remove_leftovers, replacing, working_in, write_json

if TYPE_CHECKING:
    from annealfit.studies.training_run import TrainingRun

MODEL_FILE = "model.safetensors"
CHECKPOINT_FILE = "checkpoint.safetensors"
CONFIG_FILE = "config.json"
DIGESTS_FILE = "SHA256SUMS"
HISTORY_FORMATS = ("csv", "parquet")


@contextmanager
def opened_run_folder(folder: Path, config: Mapping[str, Any], *, resume: bool) -> Iterator[None]:
    """Have the folder to oneself and note the configuration; a folder that holds a run already is only resumed.

    The configuration of a run that is resumed stays until the run is saved again: it may yet be refused.
    """
    with working_in(folder):
        if not resume:
            if any((folder / name).exists() for name in (CHECKPOINT_FILE, MODEL_FILE)):
                raise InvalidInputError(
                    f"{folder} holds a run already; pass --resume to continue it, or name another folder with --out"
                )
            write_json(folder / CONFIG_FILE, config)
        remove_leftovers(folder / "samples")
        yield


def save_run(run: TrainingRun, folder: Path, config: Mapping[str, Any], *, history_format: str = "csv") -> None:
    """Write configuration, model, history and metrics; the checkpoint stays, for a run that is to go on."""
    write_json(folder / CONFIG_FILE, config)
    choose("history format", history_format, HISTORY_FORMATS)
    rows = [{"method": record.method, **row} for record in run.records for row in record.rows()]
    write_table(rows, folder / f"history.{history_format}")
    write_json(
        folder / "metrics.json",
        {
            record.method: {
                "loss": record.loss,
                "cross_entropy": record.cross_entropy,
                "seconds": record.seconds,
                "train": record.train,
                "test": record.test,
                "test_recall_per_class": dict(zip(run.dataset.class_names, record.recall.tolist(), strict=True)),
            }
            for record in run.records
        },
    )
    run.model.save(folder / MODEL_FILE)
    _write_digests(folder, (CONFIG_FILE, MODEL_FILE, "metrics.json", f"history.{history_format}"))


def _write_digests(folder: Path, names: Sequence[str]) -> None:
    """The files' SHA-256 in the format of `sha256sum --check`, so that a copy of a run can be told from the run."""
    with replacing(folder / DIGESTS_FILE) as file:
        for name in names:
            file.write(f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n".encode())


def write_table(rows: list[dict[str, Any]], path: Path) -> None:
    """Rows as CSV or Parquet, by the path's ending; rows may lack columns that others have."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    with replacing(path) as file:
        if path.suffix == ".parquet":
            pandas = require("pandas", extra="parquet", purpose="writing Parquet")
            require("pyarrow", extra="parquet", purpose="writing Parquet")
            pandas.DataFrame(rows, columns=columns).to_parquet(file, index=False)
            return
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        text.flush()
        text.detach()  # the file is closed by its owner
