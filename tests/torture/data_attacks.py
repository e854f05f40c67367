"""Other people's data and names: damaged images and archives, answers of other solvers, texts that mean something."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow
from mutations import mutate_bytes, mutate_document
from onnx import helper, numpy_helper
from outcomes import Tally, attempt
from PIL import Image
from pyarrow import parquet
from rich.console import Console
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler

from annealfit import AnnealedClassifier, load_model, save_model
from annealfit.cli.output import plain
from annealfit.data.datasets.formats import read_members
from annealfit.data.datasets.images import read_image
from annealfit.data.datasets.own_data import read_own, read_rows, read_table
from annealfit.data.features import RowScaler
from annealfit.hardware.topologies import chip_of_solver, read_properties
from annealfit.quantization.network import quantize_network
from annealfit.studies.instances import read_answers
from annealfit.studies.report.drawing import make_figure, save_figure, shown_plainly

SCALERS = (StandardScaler, RowScaler, MinMaxScaler, MaxAbsScaler)
INSTANCE = "digits-d18-k1-centred-first-c0"


def attack_inputs(folder: Path, count: int, seed: int) -> Iterator[Callable[[], Tally]]:
    """Damaged files of the kinds that users bring: read, or refused with a sentence. An attack for each kind."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng([seed, 20])
    pixels = generator.integers(0, 256, (12, 9, 3), dtype=np.uint8)
    picture, archive = io.BytesIO(), io.BytesIO()
    Image.fromarray(pixels).save(picture, format="PNG")
    np.savez_compressed(archive, X=generator.random((12, 5, 5)), y=np.arange(12) % 3)
    bits = "".join(map(str, generator.integers(0, 2, 19)))
    table = "instance,bits\n" + f"{INSTANCE},{bits}\n" * 3
    answers = json.dumps({INSTANCE: [bits] * 3}).encode()
    read_labelled = lambda path: read_table(path, "y", folder)  # noqa: E731
    kinds: tuple[tuple[str, bytes, Any, Any], ...] = (
        ("table.parquet", _parquet(generator), read_labelled, _is_table),
        ("table.csv", _csv(generator), read_rows, _is_finite),
        ("data.zip", _zip(generator), _read_zip, bool),
        ("network.onnx", _network(generator), _read_network, bool),
        ("answers.json", answers, read_answers, bool),
        ("image.png", picture.getvalue(), read_image, _is_image),
        ("own.npz", archive.getvalue(), read_own, lambda parts: len(parts.class_names) >= 2),
        ("answers.csv", table.encode(), read_answers, bool),
    )
    for number, (name, content, read, judge) in enumerate(kinds):
        yield partial(_damage, folder / name, content, read, judge, count, np.random.default_rng([seed, 20, number]))
    yield partial(_documents, folder / "solver.json", count, np.random.default_rng([seed, 20, len(kinds)]))


def _parquet(generator: np.random.Generator) -> bytes:
    stream = io.BytesIO()
    columns = {"a": generator.normal(size=40), "b": generator.normal(size=40), "y": np.arange(40) % 3}
    parquet.write_table(pyarrow.table(columns), stream)
    return stream.getvalue()


def _csv(generator: np.random.Generator) -> bytes:
    return "\n".join(["a,b,c", *(",".join(map(repr, row)) for row in generator.normal(size=(20, 3)).tolist())]).encode()


def _zip(generator: np.random.Generator) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("wanted", "other"):
            archive.writestr(name, generator.bytes(100) * 3)
    return stream.getvalue()


def _read_zip(path: Path) -> dict[str, bytes]:
    return read_members(path, ["wanted"], path.name)


def _network(generator: np.random.Generator) -> bytes:
    """A network of two layers."""
    tensors = [generator.normal(size=(4, 6)).astype(np.float32), generator.normal(size=(6, 3)).astype(np.float32)]
    nodes = [
        helper.make_node("MatMul", ["x", "first"], ["a"], name="one"),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "second"], ["y"], name="two"),
    ]
    ends = [helper.make_tensor_value_info(name, 1, [None, size]) for name, size in (("x", 4), ("y", 3))]
    constants = [
        numpy_helper.from_array(tensor, name) for tensor, name in zip(tensors, ("first", "second"), strict=True)
    ]
    graph = helper.make_graph(nodes, "graph", ends[:1], ends[1:], constants)
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def _read_network(path: Path) -> Any:
    return quantize_network(path, np.ones((30, 4), np.float32), 2, method="nearest", damping=0.01)


def _is_table(found: Any) -> bool:
    names, parts, _ = found
    return len(names) >= 2 and all(X.shape[0] == len(y) and _is_finite(X[:]) for X, y in parts)


def _is_finite(rows: Any) -> bool:
    return bool(np.isfinite(np.asarray(rows)).all())


def _is_image(image: np.ndarray) -> bool:
    return image.ndim == 3 and bool(np.isfinite(image).all())


def _damage(path: Path, content: bytes, read: Any, judge: Any, count: int, generator: np.random.Generator) -> Tally:
    tally = Tally(f"brought along: {path.name}, damaged bytes")
    for number in range(count):
        path.write_bytes(mutate_bytes(content, [content[::-1]], generator))
        attempt(tally, f"mutation {number}", lambda: read(path), judge)
    return tally


def _documents(path: Path, count: int, generator: np.random.Generator) -> Tally:
    """Properties of solvers, with other values in every field."""
    tally = Tally("brought along: solver properties")
    solver = {"topology": {"type": "zephyr", "shape": [2, 2]}, "qubits": list(range(20)), "couplers": [[0, 9]]}
    for number in range(count):
        path.write_text(json.dumps({**mutate_document(solver, generator), "chip_id": "x"}))
        attempt(
            tally, f"mutation {number}", lambda: chip_of_solver(read_properties(path)), lambda chip: len(chip.graph) > 0
        )
    return tally


def attack_columns(folder: Path, count: int, seed: int) -> Tally:
    """Tables whose columns have another order, other names or others beside them: the same answers, or refused."""
    tally, generator = Tally("brought along: columns of tables, turned and renamed"), np.random.default_rng([seed, 22])
    folder.mkdir(parents=True, exist_ok=True)
    rows, names = generator.normal(size=(40, 4)) * [1, 5, 0.2, 2], list("abcd")
    labels = np.array(["no", "yes"])[(rows[:, 0] + rows[:, 1] > 0).astype(int)]
    table = pandas.DataFrame(rows, columns=names)
    quiet = {"max_iter": 30, "random_state": 0}
    models = [AnnealedClassifier(**quiet), *(make_pipeline(kind(), AnnealedClassifier(**quiet)) for kind in SCALERS)]
    for number in range(count):
        model = models[number % len(models)].fit(table, labels)
        save_model(model, folder / "model")
        changed = table[generator.permutation(names)].assign(kind=labels)
        if generator.random() < 0.3:
            changed = changed.rename(columns={names[generator.integers(4)]: ["x", "b", "", "a"][generator.integers(4)]})
        if generator.random() < 0.2:
            changed = changed.drop(columns=changed.columns[generator.integers(4)])
        path = folder / ("new.csv" if number % 2 else "new.parquet")
        if number % 2:
            changed.to_csv(path, index=False)
        else:
            columns = [pyarrow.array(changed.iloc[:, place]) for place in range(changed.shape[1])]
            parquet.write_table(pyarrow.Table.from_arrays(columns, names=[*map(str, changed.columns)]), path)

        def answers(path: Path = path) -> Any:
            loaded = load_model(folder / "model")
            return loaded.predict(read_rows(path, [*loaded.feature_names_in_]))

        expected = model.predict(table)
        attempt(tally, f"table {number}", answers, lambda found, expected=expected: np.array_equal(found, expected))
    return tally


NAMES = (
    *(
        "[bold]",
        "[/bold]",
        "[/]",
        "\\[",
        "a\\",
        "[link=x]y[/link]",
        "\x1b[31mred",
        "\x1b]0;title\x07",
        "\x9b31m",
        "a\rb",
    ),
    *(
        "$\\foo{$",
        "$x^$",
        "$$",
        "\\$",
        "{",
        "%s",
        "\x00",
        "‮backwards",
        "é" * 100,
        "x" * 100_000,
        "\n" * 50,
        "<b>",
        "a\tb",
    ),
    *("../../x", "", " ", "'; rm -rf /", "\ud800", "𝔘", "😀" * 30, "[red]" * 1000),
)


def attack_texts(folder: Path, seed: int, count: int) -> Tally:
    """Hostile names in the terminal and in figures: shown, and obeyed by nobody."""
    tally, generator = Tally("texts: terminal and figures"), np.random.default_rng([seed, 21])
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        name = NAMES[number % len(NAMES)]
        if number >= len(NAMES):
            name = name[:200] + NAMES[int(generator.integers(0, len(NAMES)))][:200]
        attempt(tally, f"terminal: {name[:40]!r}", lambda name=name: _printed(name), _is_harmless)
        if number % 8 == 0 or number < len(NAMES):
            attempt(tally, f"figure: {name[:40]!r}", lambda name=name: _drawn(name, folder), lambda size: size > 0)
    return tally


def _printed(name: str) -> str:
    stream = io.StringIO()
    Console(file=stream, force_terminal=True, highlight=False, width=200).print(
        f"[bold]class[/] {plain(name)}", soft_wrap=True
    )
    return stream.getvalue()


def _is_harmless(text: str) -> bool:
    """Nothing but our own two sequences (bold on, and off) and plain characters."""
    rest = text.replace("\x1b[1m", "").replace("\x1b[0m", "")
    return all(character in "\n\t" or character.isprintable() for character in rest) and "class" in text


def _drawn(name: str, folder: Path) -> int:
    figure = make_figure(figsize=(2, 1))
    axes = figure.subplots()
    axes.set_title(shown_plainly(name))
    axes.set_xticks([0], [shown_plainly(name)])
    return save_figure(figure, folder / "figure.png").stat().st_size
