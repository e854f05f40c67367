"""`AnnealedClassifier`: scikit-learn's manners around `annealfit.training`."""

from annealfit.classifier.conv_net import AnnealedConvNet
from annealfit.classifier.estimator import PRESETS, AnnealedClassifier
from annealfit.classifier.messages import CUT_SHORT

__all__ = ["CUT_SHORT", "PRESETS", "AnnealedClassifier", "AnnealedConvNet"]
