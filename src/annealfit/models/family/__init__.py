"""Other models that the literature trains by annealing, each as quadratic problems of this package."""
