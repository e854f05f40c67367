"""Wide sparse rows beside LogisticRegression: `python -m benchmarks.sparse`.

Made-up texts of 60 words from ten topics, as TF-IDF. Every fit has a process of its own, for its peak memory;
processor seconds are those of the fit alone.
"""

import json
import resource
import subprocess
import sys
import time
import warnings

from benchmarks.timing import print_table

import numpy as np
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression

from annealfit import AnnealedClassifier
from annealfit.training.objectives import LinearHead

WIDTHS = (3_000, 10_000, 25_000, 100_000)
ROWS, CLASSES, WORDS, PENALTY = 4000, 10, 60, 1e-3


def texts(width):
    """Return TF-IDF (ROWS, width) and topics: word frequencies follow Zipf's law, and differ between topics."""
    generator, y = np.random.default_rng(0), np.arange(ROWS) % CLASSES
    words = np.empty((ROWS, WORDS), int)
    for topic in range(CLASSES):
        frequencies = np.exp(0.7 * generator.normal(size=width)) / np.arange(1, width + 1)
        own = (y == topic).sum(), WORDS
        words[y == topic] = generator.choice(width, size=own, p=frequencies / frequencies.sum())
    counts = csr_array((np.ones(words.size), (np.repeat(np.arange(ROWS), WORDS), words.ravel())), shape=(ROWS, width))
    return TfidfTransformer().fit_transform(counts), y


def measure(ours, width):
    """Return processor seconds, mebibytes of memory beyond the data's, and the loss that was reached."""
    X, y = texts(width)
    model = AnnealedClassifier(random_state=0) if ours else LogisticRegression(C=1 / (PENALTY * ROWS), max_iter=1000)
    if ours:
        model.fit(X[:50, :50], y[:50])  # loads compiled code
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.process_time()
    model.fit(X, y)
    seconds = time.process_time() - started
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    head = LinearHead.of_arrays(X, y, CLASSES, PENALTY)
    return seconds, memory, head.at(np.vstack([model.coef_.T, model.intercept_])).loss


def main():
    rows = []
    for width in WIDTHS:
        program = [sys.executable, "-W", "ignore", "-m", "benchmarks.sparse"]
        found = [json.loads(subprocess.check_output([*program, str(int(ours)), str(width)])) for ours in (True, False)]
        (ours, memory, loss), (theirs, their_memory, their_loss) = found
        figures = [f"{ours:.2f}", f"{theirs:.2f}", f"{ours / theirs:.1f}×", f"{memory:.0f}", f"{their_memory:.0f}"]
        rows.append([str(width), *figures, f"{loss:.6f}", f"{their_loss:.6f}"])
    print_table(
        "TF-IDF of 4,000 texts in ten classes: a default fit and LogisticRegression, one thread",
        ["columns", "ours s", "theirs s", "ratio", "ours MiB", "theirs MiB", "our loss", "their loss"],
        rows,
    )


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if sys.argv[1:]:
        json.dump(measure(bool(int(sys.argv[1])), int(sys.argv[2])), sys.stdout)
    else:
        main()
