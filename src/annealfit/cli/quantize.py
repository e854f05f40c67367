"""The command about low-bit weights: an ONNX network in, one with few levels per weight out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from annealfit._support.errors import InvalidInputError
from annealfit.cli.display import console, make_progress, make_table, plain
from annealfit.cli.options import BlocksOption, JsonOption
from annealfit.cli.printing import print_table
from annealfit.cli.sampling import choose_sampler
from annealfit.quantization.grids import GRIDS

if TYPE_CHECKING:
    from annealfit.quantization.network_results import QuantizedNetwork

_METHODS = "nearest, gptq, gptq_search, descent, annealed, lattice"


def quantize(
    model: Annotated[Path, typer.Argument(metavar="MODEL.onnx", help="The trained network.")],
    calibration: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="What the network is shown: an npy file of some hundred rows, better thousands, as it reads them; "
            "or an npz file with an array for each of its inputs.",
        ),
    ],
    bits: Annotated[int, typer.Option(help="Bits per weight, 1 to 8.")] = 2,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE.onnx",
            help="Where the network goes; its integers go beside it, packed, with the ending safetensors.",
            show_default="nothing is written",
        ),
    ] = None,
    method: Annotated[
        str | None, typer.Option(metavar="NAME", help=f"How levels are chosen: {_METHODS}.", show_default="annealed")
    ] = None,
    sampler: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[:SETTING=VALUE,…]",
            help="A sampler that chooses the levels instead, as of annealfit train.",
        ),
    ] = None,
    blocks: BlocksOption = None,
    levels: Annotated[str, typer.Option(metavar="NAME", help=f"Which levels: {', '.join(GRIDS)}.")] = "symmetric",
    group_size: Annotated[
        int | None, typer.Option(help="Inputs that share a scale.", show_default="one scale per output")
    ] = None,
    damping: Annotated[
        float, typer.Option(help="Noise that inputs are assumed to have, as a share of their power: for few rows.")
    ] = 0.0,
    keep: Annotated[
        list[str] | None, typer.Option(metavar="NODE", help="A node to leave as it is; can be repeated.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Decides every anneal.")] = 0,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the errors: png, svg or pdf.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Round a trained network's weights to a few bits each.

    The bits are chosen so that the network's outputs change as little as possible. Layers (MatMul, Gemm and Conv) are
    quantised one after another, each with the inputs that the quantised layers before it produce. At 1 and 2 bits
    annealing has a fraction of GPTQ's error; at 3 bits and more there is little left to win. The written network is
    an ordinary one, with the rounded values as its weights.

    Examples of use:

      annealfit quantize model.onnx --bits 2 --calibration X.npy -o small.onnx

      annealfit quantize model.onnx --bits 2 --levels ternary --calibration X.npy

      annealfit quantize model.onnx --bits 1 --calibration X.npy --sampler levels
    """
    from annealfit.quantization.network import quantize_network
    from annealfit.studies.report import quantization_figure

    _check_output(model, output)
    if plot is not None:
        quantization_figure.check_picture(plot)
    with _opened_method(method, sampler, blocks, seed) as chosen, _progress() as on_layer:
        found = quantize_network(
            model,
            calibration,
            bits,
            method=chosen,
            levels=levels,
            group_size=group_size,
            damping=damping,
            keep=keep or (),
            random_state=seed,
            on_layer=on_layer,
        )
    written = [] if output is None else list(found.save(output))
    if plot is not None:
        title = f"{model.name}, {found.layers[0].grid.count} levels per weight"
        names, errors = [layer.name for layer in found], [layer.errors for layer in found]
        written.append(quantization_figure.save_layer_errors(names, errors, plot, title))
    if as_json:
        typer.echo(json.dumps(_as_json(found, written), indent=2, ensure_ascii=False))
        return
    print_table(_table(found))
    for line in _summary(found, written):
        console.print(plain(line), soft_wrap=True)


@contextmanager
def _opened_method(method: str | None, sampler: str | None, blocks: int | None, seed: int) -> Iterator[Any]:
    """The method or the sampler that was asked for; a sampler is closed in the end: it may have a connection."""
    if sampler is None:
        if blocks is not None:
            raise InvalidInputError("--blocks is for the problems of a sampler; name one with --sampler")
        yield method or "annealed"
        return
    if method is not None:
        raise InvalidInputError(
            f"--sampler {sampler} chooses the levels instead of --method {method}; give one of them"
        )
    with choose_sampler(sampler, blocks, None, seed) as chosen:
        yield chosen


def _check_output(model: Path, output: Path | None) -> None:
    if output is None:
        return
    if output.suffix.lower() != ".onnx":
        raise InvalidInputError(f"{output.name} does not end in onnx, which is what is written: {output.stem}.onnx")
    if output.resolve() == model.resolve():
        raise InvalidInputError(f"{output} is the network itself; write to another file")


@contextmanager
def _progress() -> Iterator[Callable[[int, int, str], None]]:
    progress = make_progress(
        TextColumn("Quantising {task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    )
    with progress:
        task = progress.add_task("…", total=None)

        def on_layer(number: int, total: int, name: str) -> None:
            progress.update(task, total=total, completed=number, description=plain(name))

        yield on_layer


def _table(found: QuantizedNetwork) -> Table:
    table = make_table("Squared error of each layer's outputs, relative")
    methods = list(found.layers[0].errors)
    table.add_column("layer", no_wrap=True)
    table.add_column("operator", no_wrap=True)
    for heading in ("weights", *methods, "kept", "bytes", "seconds"):
        table.add_column(heading.replace("_", " "), justify="right", no_wrap=True)
    for layer in found:
        table.add_row(
            plain(layer.name),
            layer.operator,
            "×".join(map(str, layer.weights.shape)),
            *(f"{layer.errors[method]:.3g}" for method in methods),
            f"{layer.error:.3g}",
            f"{layer.bytes_before:,} → {layer.bytes_after:,}",
            f"{layer.seconds:.1f}",
        )
    return table


def _summary(found: QuantizedNetwork, written: list[Path]) -> list[str]:
    share = found.bytes_before / max(found.bytes_after, 1)
    agreement = ""
    if found.agreement is not None:
        agreement = f"; the largest output is the same for {found.agreement:.1%} of the calibration rows"
    lines = [
        f"Network: error of the outputs {found.output_error:.3g}{agreement}.",
        f"Parameters: {found.bytes_before:,} bytes before, {found.bytes_after:,} packed: {share:.1f} times smaller.",
    ]
    return [*lines, *(f"Written: {path}" for path in written)] + (
        [] if written else ["Add -o FILE.onnx to write the network, --plot FILE.png for a figure."]
    )


def _as_json(found: QuantizedNetwork, written: list[Path]) -> dict[str, Any]:
    return {
        "layers": [
            {
                "name": layer.name,
                "operator": layer.operator,
                "shape": list(layer.weights.shape),
                "levels": layer.grid.levels.tolist(),
                "errors": dict(layer.errors),
                "error": layer.error,
                "bytes_before": layer.bytes_before,
                "bytes_after": layer.bytes_after,
                "seconds": layer.seconds,
            }
            for layer in found
        ],
        "output_error": found.output_error,
        "agreement": found.agreement,
        "bytes_before": found.bytes_before,
        "bytes_after": found.bytes_after,
        "written": [str(path) for path in written],
    }
