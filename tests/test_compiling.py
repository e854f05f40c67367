"""No clock measures the compiler."""

import json
import subprocess
import sys

PROGRAM = """
import json, sys
import numpy as np
from numba.core.dispatcher import Dispatcher
from annealfit import AnnealedClassifier
from annealfit.training import Trainer

def compiled():
    modules = [module for name, module in sys.modules.items() if name.startswith("annealfit.") and module is not None]
    found = {value for module in modules for value in vars(module).values() if isinstance(value, Dispatcher)}
    return {(f.py_func.__module__, f.py_func.__name__, str(s)) for f in found for s in f.signatures}

start, before = Trainer.start, set()

def watched(trainer, weights):
    global before
    before = compiled()
    return start(trainer, weights)

Trainer.start = watched
generator, new = np.random.default_rng(0), []
sizes = [(300, 5, 2), (300, 5, 4), (4000, 20, 10), (3000, 128, 4), (4000, 128, 10), (900, 320, 2)]
for rows, features, classes in sizes:
    X = generator.normal(size=(rows, features))
    y = (X @ generator.normal(size=(features, classes)) + 3 * generator.normal(size=(rows, classes))).argmax(axis=1)
    AnnealedClassifier(max_iter=30, random_state=0).fit(X, y)
    new += [(features, classes, *found) for found in compiled() - before]
print(json.dumps(new))
"""


def test_what_a_training_needs_is_compiled_before_its_clock_runs():
    """What is compiled later is the sampler's, which has a `prepare` of its own."""
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", PROGRAM], capture_output=True, text=True, check=True)
    late = json.loads(run.stdout.splitlines()[-1])
    assert late  # the sampler's, so that what is looked for would be found
    assert {module for _, _, module, *_ in late} <= {
        "annealfit.samplers.native._levels",
        "annealfit.samplers.native._descent",
    }
