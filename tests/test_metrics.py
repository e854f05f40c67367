import numpy as np

from annealfit.models.metrics import classification_metrics

# True classes in rows: 3 of 4 zeros right, 1 of 2 ones, the single two missed.
TRUE = [0, 0, 0, 0, 1, 1, 2]
PREDICTED = [0, 0, 0, 1, 1, 0, 0]


def test_against_counts_by_hand():
    metrics = classification_metrics(TRUE, PREDICTED)
    assert tuple(metrics) == ("accuracy", "precision", "recall", "f1", "kappa", "mcc")
    precision, recall = np.array([3 / 5, 1 / 2, 0]), np.array([3 / 4, 1 / 2, 0])
    f1 = np.array([2 * p * r / (p + r) if p + r else 0 for p, r in zip(precision, recall, strict=True)])
    agreement, chance = 4 / 7, (4 * 5 + 2 * 2) / 49
    expected = {
        "accuracy": 4 / 7,
        "precision": precision.mean(),
        "recall": recall.mean(),
        "f1": f1.mean(),
        "kappa": (agreement - chance) / (1 - chance),
    }
    for name, value in expected.items():
        np.testing.assert_allclose(metrics[name], value, rtol=1e-12)


def test_matthews_for_two_classes_is_the_textbook_formula():
    true, predicted = [1, 1, 1, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0, 1]
    tp, tn, fp, fn = 2, 3, 1, 1
    expected = (tp * tn - fp * fn) / np.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    np.testing.assert_allclose(classification_metrics(true, predicted)["mcc"], expected, rtol=1e-12)
