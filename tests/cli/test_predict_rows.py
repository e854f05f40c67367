"""`annealfit predict` on tables and in pipes: the answers are those of the model."""

import csv
import io
import json
import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import annealfit
from annealfit.data.datasets import Dataset
from annealfit.data.features import RandomConvFeatures
from annealfit.models.image_classifier import ImageClassifier
from annealfit.studies import Prepared, run_training

IRIS, SPECIES = load_iris(return_X_y=True)
NAMES = np.array(["setosa", "versi,color", "=virginica"])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    model = make_pipeline(StandardScaler(), annealfit.AnnealedClassifier(max_iter=30, random_state=0))
    path = tmp_path_factory.mktemp("model") / "iris.safetensors"
    annealfit.save_model(model.fit(IRIS, NAMES[SPECIES]), path)
    return model, path


def predict(*arguments, given=None):
    command = [sys.executable, "-m", "annealfit", "predict", *map(str, arguments)]
    return subprocess.run(command, input=given, capture_output=True, timeout=120)


def as_csv(heading):
    lines = [",".join(map(repr, row)) for row in IRIS.tolist()]
    return "\n".join([*(["a,b,c,d"] if heading else []), *lines, ""]).encode()


@pytest.mark.parametrize("kind", ["csv", "npy", "npz", "pipe"])
def test_rows(trained, tmp_path, kind):
    model, path = trained
    source, given = tmp_path / f"rows.{kind}", None
    if kind == "npy":
        np.save(source, IRIS)
    elif kind == "npz":
        np.savez(source, X=IRIS, y=SPECIES)
    elif kind == "csv":
        source.write_bytes(as_csv(heading=True))
    else:
        source, given = "-", as_csv(heading=False)
    result = predict(path, source, given=given)
    assert result.returncode == 0, result.stderr
    rows = list(csv.DictReader(io.StringIO(result.stdout.decode())))
    expected = ["'=virginica" if name == "=virginica" else name for name in model.predict(IRIS)]  # no formula
    assert [row["class"] for row in rows] == expected
    np.testing.assert_allclose([float(row["probability"]) for row in rows], model.predict_proba(IRIS).max(axis=1))


def test_rows_as_json(trained, tmp_path):
    model, path = trained
    (tmp_path / "rows.csv").write_bytes(as_csv(heading=True))
    answers = json.loads(predict(path, tmp_path / "rows.csv", "--json", "--top", 2).stdout)
    assert [answer["row"] for answer in answers] == list(range(len(IRIS)))
    assert [next(iter(answer["classes"])) for answer in answers] == model.predict(IRIS).tolist()
    assert all(len(answer["classes"]) == 2 for answer in answers)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"1,2,3,4\n1,x,3,4\n", "line 2: 'x' is no finite number"),
        (b"1,2.x,3,4\n1,2,3,4\n", "line 1: '2.x' is no finite number"),
        (b"1,2,3,4\n1,2,3_0,4\n", "line 2: '3_0' is no finite number"),
        (b"1,2,3,4\n1,2,3\n", "line 2 has 3 numbers, the first line 4"),
        (b"1,2,3\n", "3 features"),
        (b"1,2,nan,4\n", "line 1: 'nan' is no finite number"),
        (b"1,2,1e400,4\n", "line 1: '1e400' is no finite number"),
        (b"a,b,c,d,e\n1,2,3,4\n", "line 2 has 4 numbers, the first line 5"),
        (b"a,b\n", "no rows of numbers"),
    ],
)
def test_wrong_rows_are_refused(trained, content, message):
    result = predict(trained[1], "-", given=content)
    assert result.returncode == 2
    assert message in result.stderr.decode()
    assert b"Traceback" not in result.stderr


def test_an_image_from_a_pipe(tmp_path):
    pillow = pytest.importorskip("PIL.Image")
    images = np.random.default_rng(0).random((40, 8, 8))
    features = RandomConvFeatures(2, random_state=0).fit(images)
    classifier = annealfit.AnnealedClassifier(max_iter=5, random_state=0).fit(
        features.transform(images), np.arange(40) % 2
    )
    annealfit.save_model(ImageClassifier(features, classifier, ("cat", "dog")), tmp_path / "m.safetensors")
    content = io.BytesIO()
    pillow.fromarray((255 * images[0]).astype(np.uint8)).save(content, "png")
    (answer,) = json.loads(predict(tmp_path / "m.safetensors", "-", "--json", given=content.getvalue()).stdout)
    assert answer["image"] == "-"
    assert sorted(answer["classes"]) == ["cat", "dog"]


def test_parquet_with_and_without_the_labels(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    table = pandas.DataFrame(IRIS, columns=list("abcd"))
    table.assign(kind=NAMES[SPECIES]).to_parquet(tmp_path / "train.parquet")
    table.to_parquet(tmp_path / "new.parquet")
    program = [sys.executable, "-m", "annealfit", "train", tmp_path / "train.parquet", "--labels", "kind", "--no-plots"]
    subprocess.run([*map(str, program), "--out", str(tmp_path / "run"), "--no-baselines"], check=True, timeout=120)
    answers = [predict(tmp_path / "run", tmp_path / f"{name}.parquet").stdout for name in ("train", "new")]
    assert answers[0] == answers[1]
    assert answers[0].count(b"\n") == len(IRIS) + 1


def test_columns_are_found_by_their_names(tmp_path):
    """A table whose columns have another order, or a text among them, has the same answers."""
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    table = pandas.DataFrame(IRIS, columns=list("abcd")).assign(kind=NAMES[SPECIES])
    table.to_parquet(tmp_path / "train.parquet")
    program = [sys.executable, "-m", "annealfit", "train", tmp_path / "train.parquet", "--labels", "kind", "--no-plots"]
    options = ["--standardize", "features", "--out", str(tmp_path / "run"), "--no-baselines"]
    subprocess.run([*map(str, program), *options], check=True, timeout=120)
    turned = table[["d", "kind", "b", "a", "c"]]
    turned.to_parquet(tmp_path / "turned.parquet")
    turned.to_csv(tmp_path / "turned.csv", index=False)
    np.save(tmp_path / "unnamed.npy", IRIS)
    names = ("train.parquet", "turned.parquet", "turned.csv", "unnamed.npy")
    results = [predict(tmp_path / "run", tmp_path / name) for name in names]
    assert {result.stderr for result in results} == {b""}
    answers = {tuple(line.split(b",")[0] for line in result.stdout.splitlines()) for result in results}
    assert len(answers) == 1
    for name in ("other.csv", "other.parquet"):
        other = turned.rename(columns={"b": "B"})
        other.to_csv(tmp_path / name, index=False) if name.endswith("csv") else other.to_parquet(tmp_path / name)
        refused = predict(tmp_path / "run", tmp_path / name)
        assert refused.returncode == 2
        assert b"has no column 'b'; the model was trained on the columns a, b, c, d" in refused.stderr


@pytest.mark.parametrize("names", [["1", "-2"], ["01", "1"], ["9" * 20, "1"], ["9" * 5000, "1"]])
def test_classes_of_digits_keep_their_names(tmp_path, names):
    rows, kinds = IRIS[:100], SPECIES[:100]
    dataset = Dataset("digits", rows, kinds, rows, kinds, tuple(names))
    classifier = annealfit.AnnealedClassifier(max_iter=5, random_state=0)
    run = run_training(Prepared.of(dataset, None), classifier, baselines=False)
    run.model.save(tmp_path / "model.safetensors")
    again = annealfit.load_model(tmp_path / "model.safetensors")
    assert [*map(str, again.predict(rows[[0, -1]]))] == names
