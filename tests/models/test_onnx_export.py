"""ONNX files of fitted models, run by onnxruntime, against predict and predict_proba."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.datasets import load_breast_cancer, load_digits, load_iris
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, Normalizer, StandardScaler
from sklearn.tree import DecisionTreeClassifier

import annealfit
from annealfit import (
    QUBOSVC,
    AnnealedClassifier,
    AnnealedConvNet,
    AnnealedRBM,
    BinaryMatrixFactorization,
    BinarySparseCoding,
    QBoostClassifier,
    QUBORidge,
    QUBORidgeClassifier,
)
from annealfit._support.errors import InvalidInputError
from annealfit.data.datasets import ImagePreparation
from annealfit.data.features import OnnxFeatures, RandomConvFeatures, RowScaler
from annealfit.models.image_classifier import ImageClassifier
from annealfit.quantization import quantize_network
from annealfit.samplers import GreedyDescent

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

IRIS, SPECIES = load_iris(return_X_y=True)
CANCER, IS_BENIGN = load_breast_cancer(return_X_y=True)
DIGITS, NUMBERS = load_digits(return_X_y=True)
IMAGES = DIGITS.reshape(-1, 8, 8)[:300] / 16
QUICK = {"max_iter": 20, "random_state": 0}


def exported(model, X, path):
    """Outputs by name, of rows in single precision, and these rows."""
    annealfit.to_onnx(model, path)
    onnx.checker.check_model(str(path), full_check=True)
    session, rows = runtime.InferenceSession(path), X.astype(np.float32)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {"X": rows}), strict=True)), rows.astype(float)


def check_classifier(model, X, path, atol=1e-6):
    found, rows = exported(model, X, path)
    assert list(found) == ["label", "probabilities"]
    np.testing.assert_array_equal(found["label"], model.predict(rows))
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(rows), rtol=0, atol=atol)


@pytest.mark.parametrize(
    "scaler",
    [
        *(StandardScaler(), StandardScaler(with_mean=False), StandardScaler(with_std=False)),
        *(MinMaxScaler(clip=True), MaxAbsScaler(), RowScaler(), None),
    ],
    ids=str,
)
@pytest.mark.parametrize("data", [(IRIS, SPECIES), (CANCER, IS_BENIGN)], ids=["three classes", "two"])
def test_a_pipeline_of_a_scaler_and_a_classifier(scaler, data, tmp_path):
    X, y = data
    model = make_pipeline(scaler, "passthrough", AnnealedClassifier(**QUICK)).fit(X, y)
    check_classifier(model, X, tmp_path / "model.onnx")


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["setosa", "vers, é", "virginica"]),
        np.array(["a", "b", "c"], dtype=object),
        np.array([-5, 7, 300], dtype=np.int16),
        np.array([1.0, 2.0, 4.0]),
        np.array([False, True, True]),
    ],
    ids=str,
)
def test_labels_of_any_type(labels, tmp_path):
    model = AnnealedClassifier(**QUICK).fit(IRIS, labels[SPECIES])
    check_classifier(model, IRIS, tmp_path / "model.onnx")


@pytest.mark.parametrize("images", [IMAGES, IMAGES[..., None], IMAGES.reshape(300, 64)], ids=lambda X: str(X.shape))
@pytest.mark.parametrize("standardize", ["none", "pixels", "features"])
def test_convolution_features(standardize, images, tmp_path):
    features = RandomConvFeatures((3, 4), (3, 2), (2, 1), standardize=standardize, random_state=0)
    model = make_pipeline(features, AnnealedClassifier(**QUICK)).fit(images, NUMBERS[:300])
    check_classifier(model, images, tmp_path / "model.onnx", atol=2e-6)


def test_networks_colour_and_low_bits(tmp_path):
    coloured = np.stack([IMAGES, IMAGES[::-1], IMAGES**2], axis=-1)
    net = AnnealedConvNet(3, max_iter=14, standardize="pixels", random_state=0).fit(coloured, NUMBERS[:300])
    check_classifier(net, coloured, tmp_path / "net.onnx", atol=2e-6)
    small = net.quantize(coloured, bits=2)
    check_classifier(small, coloured, tmp_path / "small.onnx", atol=2e-6)
    net.save(tmp_path / "net.safetensors")
    check_classifier(AnnealedConvNet.load(tmp_path / "net.safetensors"), coloured, tmp_path / "again.onnx", atol=2e-6)


@pytest.mark.parametrize("packed", [False, True])
def test_onnx_features_bring_their_network_along(packed, tmp_path):
    annealfit.to_onnx(RandomConvFeatures(4, random_state=0).fit(IMAGES), tmp_path / "features.onnx")
    if packed:
        quantize_network(tmp_path / "features.onnx", IMAGES[:50].astype(np.float32)).save(tmp_path / "features.onnx")
    features = OnnxFeatures(tmp_path / "features.onnx", mean=0.5, std=0.25)
    model = make_pipeline(features, StandardScaler(), AnnealedClassifier(**QUICK)).fit(IMAGES, NUMBERS[:300])
    check_classifier(model, IMAGES, tmp_path / "model.onnx", atol=2e-6)


def test_an_image_classifier_answers_with_the_names_of_its_classes(tmp_path):
    features = RandomConvFeatures(2, random_state=0).fit(IMAGES)
    classifier = AnnealedClassifier(**QUICK).fit(features.transform(IMAGES), NUMBERS[:300])
    names = tuple(f"digit {number}" for number in range(10))
    model = ImageClassifier(features, classifier, names, ImagePreparation())
    found, images = exported(model, IMAGES, tmp_path / "model.onnx")
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(images), atol=2e-6)
    assert found["label"].tolist() == [names[place] for place in model.predict_proba(images).argmax(axis=1)]


SEED = {"random_state": 0}
EVERY = [
    AnnealedClassifier(**QUICK),
    *(AnnealedConvNet(3, max_iter=14, **SEED), AnnealedConvNet((3, 4), (3, 2), (2, 1), max_iter=14, **SEED)),
    *(QUBORidge(**SEED), QUBORidgeClassifier(**SEED), QUBOSVC(**SEED), QUBOSVC(kernel="linear", **SEED)),
    *(
        QBoostClassifier(n_estimators=15, estimator=tree, **SEED)
        for tree in (None, DecisionTreeClassifier(max_depth=3))
    ),
    *(AnnealedRBM(12, bits, max_iter=2, **SEED) for bits in (1, 2)),
    *(BinaryMatrixFactorization(10, bits, max_iter=2, **SEED) for bits in (1, 3)),
    *(BinarySparseCoding(12, 2, max_iter=2, **SEED), BinarySparseCoding(12, patch_size=3, max_iter=2, **SEED)),
    BinarySparseCoding(12, patch_size=4, stride=2, pool=2, max_iter=2, sampler=GreedyDescent(), **SEED),
    *(RandomConvFeatures(4, **SEED), RandomConvFeatures((3, 4), (3, 2), (2, 1), standardize="pixels", **SEED)),
    *(RowScaler(), StandardScaler(), MinMaxScaler(), MaxAbsScaler()),
]


@pytest.mark.parametrize("n_classes", [0, 2, 10])
@pytest.mark.parametrize("model", EVERY, ids=lambda model: str(model).replace("random_state=0", ""))
def test_every_model_and_extractor_is_within_a_millionth(model, n_classes, tmp_path):
    """Fitted without labels too, where that is possible; a regression is told the labels as numbers."""
    if not n_classes and not hasattr(model, "transform"):
        pytest.skip("needs labels")
    images = IMAGES if isinstance(model, AnnealedConvNet) else IMAGES.reshape(300, 64)
    fitted = clone(model).fit(images, NUMBERS[:300] % n_classes if n_classes else None)
    found, rows = exported(fitted, images, tmp_path / "model.onnx")
    methods = {"probabilities": "predict_proba", "scores": "decision_function", "label": "predict"}
    methods["variable"] = "predict" if isinstance(model, QUBORidge) else "transform"
    assert ("label" in found) == hasattr(fitted, "classes_")
    for name, values in found.items():
        np.testing.assert_allclose(values, getattr(fitted, methods[name])(rows), rtol=0, atol=1e-6)


def test_no_public_model_is_left_out():
    public = [getattr(annealfit.models, name) for name in annealfit.models.__all__]
    estimators = {kind for kind in public if isinstance(kind, type) and issubclass(kind, BaseEstimator)}
    assert estimators <= {type(model) for model in EVERY}


def test_a_regression_of_two_targets_and_a_boosting_from_a_file(tmp_path):
    model = QUBORidge(random_state=0).fit(IRIS[:, :2], IRIS[:, 2:])
    found, X = exported(model, IRIS[:, :2], tmp_path / "model.onnx")
    np.testing.assert_allclose(found["variable"], model.predict(X), atol=1e-9)
    QBoostClassifier(n_estimators=9, random_state=0).fit(IRIS, SPECIES).save(tmp_path / "model")
    model = annealfit.load_model(tmp_path / "model")
    found, X = exported(model, IRIS, tmp_path / "model.onnx")
    np.testing.assert_allclose(found["scores"], model.decision_function(X), atol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "model",
    [
        make_pipeline(PCA(10), AnnealedClassifier(**QUICK)),
        make_pipeline(MaxAbsScaler(), QBoostClassifier(n_estimators=10, random_state=0)),
        make_pipeline(Normalizer(), AnnealedRBM(8, max_iter=2, random_state=0)),
        make_pipeline(BinarySparseCoding(8, patch_size=3, max_iter=2, random_state=0), LogisticRegression()),
        make_pipeline(RandomConvFeatures(3, random_state=0), PCA(10), LogisticRegression()),
    ],
    ids=lambda model: str([type(step).__name__ for _, step in model.steps]),
)
@pytest.mark.filterwarnings("ignore::UserWarning:skl2onnx")
def test_pipelines_by_skl2onnx(model, dtype):
    skl2onnx = pytest.importorskip("skl2onnx")
    annealfit.register_skl2onnx()
    rows, names = DIGITS[:300].astype(dtype), np.array(list("abcdefghij"))[NUMBERS[:300]]
    fitted = clone(model).fit(rows, names)
    options = {LogisticRegression: {"zipmap": False}} if isinstance(model[-1], LogisticRegression) else None
    content = skl2onnx.to_onnx(fitted, rows[:1], options=options).SerializeToString()
    session = runtime.InferenceSession(content)
    label, values = session.run(None, {"X": rows})
    np.testing.assert_array_equal(label, fitted.predict(rows))
    ask = fitted.decision_function if session.get_outputs()[1].name == "scores" else fitted.predict_proba
    np.testing.assert_allclose(values, ask(rows), rtol=0, atol=1e-5 if dtype == np.float32 else 1e-6)


def test_what_cannot_be_written_is_refused_by_name(tmp_path):
    path = tmp_path / "model.onnx"
    with pytest.raises(InvalidInputError, match="PCA cannot be written as ONNX; steps that can: .*StandardScaler"):
        annealfit.to_onnx(make_pipeline(PCA(2), AnnealedClassifier(**QUICK)).fit(IRIS, SPECIES), path)
    with pytest.raises(NotFittedError):
        annealfit.to_onnx(AnnealedClassifier(), path)
    times = np.array(["2020", "2021", "2022"], dtype="datetime64[Y]")[SPECIES]
    model = AnnealedClassifier(**QUICK).fit(IRIS, SPECIES)
    model.classes_ = np.unique(times)
    with pytest.raises(InvalidInputError, match="labels of the type datetime64"):
        annealfit.to_onnx(model, path)
    coding = BinarySparseCoding(4, max_iter=1, sampler="levels", random_state=0).fit(IRIS)
    with pytest.raises(InvalidInputError, match="codes by 'levels' cannot be written as ONNX, only those of Greedy"):
        annealfit.to_onnx(coding, path)
    boosted = QBoostClassifier(n_estimators=2, estimator=LogisticRegression()).fit(IRIS, SPECIES)
    with pytest.raises(InvalidInputError, match="LogisticRegression cannot be saved as a weak learner"):
        annealfit.to_onnx(boosted, path)
    assert not path.exists()


@pytest.mark.parametrize("scaler", [StandardScaler(), RowScaler(), MinMaxScaler(), None], ids=str)
def test_rows_that_single_precision_cannot_tell_apart_are_told(scaler, tmp_path):
    """Times in seconds: the file answers otherwise than the model, so there has to be a warning."""
    times = np.column_stack([IRIS, 1.7e9 + 10 * SPECIES + IRIS[:, 0], np.full(len(IRIS), 1.7e9)])
    model = make_pipeline(scaler, AnnealedClassifier(max_iter=100, random_state=0))
    if scaler is None:
        with pytest.warns(UserWarning, match="standard"):  # the units of the columns
            model.fit(times, SPECIES)
    else:
        model.fit(times, SPECIES)
    with pytest.warns(UserWarning, match="single precision, which changes (column 4|the logits)"):
        found, _ = exported(model, times, tmp_path / "model.onnx")
    if scaler is not None:
        assert (found["label"] != model.predict(times)).any()
    for factor in (1e-42, 1e42):
        with pytest.warns(UserWarning, match="single precision"):
            annealfit.to_onnx(make_pipeline(StandardScaler(), model[-1]).fit(factor * IRIS, SPECIES), tmp_path / "m")
