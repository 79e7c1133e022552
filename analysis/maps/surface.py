"""A response over a space of settings, from one noisy observation at each of some points.

The response is a Gaussian process (Rasmussen and Williams 2006, chapter 2) with an unknown level, an anisotropic
squared-exponential kernel, a constant variance, and independent noise, fitted by maximum likelihood with scikit-learn.
Settings are given by their places in 0..1. Everything here is deterministic.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats as distributions
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from mcpo_cli.statistics.stats import Floats

Flags = NDArray[np.bool_]
LEAST = 8
"""Fewest points that a surface is fitted to, at least as many as it has kernel parameters in two dimensions."""
FOLDS = 5
"""Parts of the points, each of which is predicted from the others: a fifth is held out at a time."""
RESTARTS = 3
"""Additional starting points of the maximization of the likelihood."""
FLAT = 30.0
"""Upper bound of a kernel's length, along which the response is constant. The lower bound is the distance of
neighbours, N^(-1/F) for N points in F dimensions: a change within it cannot be distinguished from noise."""
VAGUE = 10.0
"""Prior variance of the response's level, in units of its variance: its uncertainty is in every probability."""
TOGETHER = 0.98
"""Level of the simultaneous band. The fitted kernel is taken as known, so that bands are too narrow: of 160 maps of
pure noise, 14 % exclude 0 somewhere at level .95, and 6 to 7 % at .98 (64 points of six settings, 48 of four)."""
DRAWS = 4000
"""Draws of the whole response, whose largest deviations give the width of a simultaneous band."""
SAMPLES = 1024
"""Places, times the number of settings plus 2, that sensitivity indices are computed from: a power of 2."""


class Surface:
    """A response, fitted to observations at some points."""

    def __init__(self, place_NF: Floats, value_N: Floats) -> None:
        """place_NF: the points' places, in 0..1. value_N: the observation at each."""
        self.factors = place_NF.shape[1]
        """The number of settings."""
        self._mean, self._unit = float(value_N.mean()), float(value_N.std()) or 1.0
        lengths = RBF(np.ones(self.factors), (len(value_N) ** (-1 / self.factors), FLAT))
        level = ConstantKernel(VAGUE, "fixed")
        kernel = level + ConstantKernel(0.5, (1e-3, 10.0)) * lengths + WhiteKernel(0.5, (1e-3, 2.0))
        model: Any = GaussianProcessRegressor(kernel, n_restarts_optimizer=RESTARTS, random_state=0)
        with warnings.catch_warnings():
            # A length at its bound is a valid result: the response does not change along that setting.
            warnings.simplefilter("ignore", ConvergenceWarning)
            self._model = model.fit(place_NF, (value_N - self._mean) / self._unit)
        self.noise = float(np.sqrt(self._model.kernel_.k2.noise_level)) * self._unit
        """Standard deviation of an observation around the surface."""

    def at(self, place_MF: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the response itself, without the noise of an observation."""
        mean_M, sd_M = self._model.predict(place_MF, return_std=True)
        variance_M = (sd_M * self._unit) ** 2 - self.noise**2
        return mean_M * self._unit + self._mean, np.sqrt(np.maximum(variance_M, np.finfo(np.float64).tiny))

    def sure(self, place_MF: Floats) -> tuple[Flags, Flags]:
        """The places where the response is above 0, and those where it is below, simultaneously over all places.

        The band is mean +- c sd, where c is the quantile TOGETHER of the largest |response - mean| / sd over the
        places, under the fitted process.
        """
        mean_M, sd_M = self.at(place_MF)
        _, covariance_MM = self._model.predict(place_MF, return_cov=True)
        covariance_MM = covariance_MM * self._unit**2 - self.noise**2 * np.eye(len(place_MF))
        value_M, vector_MM = np.linalg.eigh(covariance_MM / np.outer(sd_M, sd_M))
        root_MM = vector_MM * np.sqrt(np.maximum(value_M, 0))
        draw_DM = np.random.default_rng(0).normal(size=(DRAWS, len(place_MF))) @ root_MM.T
        width = float(np.quantile(np.abs(draw_DM).max(axis=1), TOGETHER))
        return mean_M > width * sd_M, mean_M < -width * sd_M

    def over(self, factors: Sequence[int], place_MK: Floats, rest_RF: Floats) -> tuple[Floats, Floats]:
        """The response at places of some settings, averaged over the others: its mean and mean probability above 0.

        Args:
            factors: the K settings whose places are given.
            place_MK: their places.
            rest_RF: places of all settings, spread evenly, that the mean is taken over.
        """
        place_MRF = np.repeat(rest_RF[None], len(place_MK), axis=0)
        place_MRF[:, :, list(factors)] = place_MK[:, None, :]
        mean_N, sd_N = self.at(place_MRF.reshape(-1, self.factors))
        above_N = distributions.norm.cdf(mean_N / sd_N)
        mean_MR, above_MR = (one_N.reshape(place_MRF.shape[:2]) for one_N in (mean_N, above_N))
        return mean_MR.mean(1), above_MR.mean(1)


@dataclass(frozen=True)
class Calibration:
    """Quality of the predictions of points that were held out."""

    z_N: Floats
    """Error of each prediction in its own standard deviations, noise included."""
    explained: float
    """Predicted share of the variance over points; 0 is as good as the mean of the others, less is worse."""

    def coverage(self, level: float) -> float:
        """Share of the points within the interval of nominal coverage `level`."""
        return float(np.mean(np.abs(self.z_N) <= float(distributions.norm.ppf(0.5 + level / 2))))


def calibration(place_NF: Floats, value_N: Floats) -> Calibration:
    """Predict each fifth of the points from the other four fifths."""
    z_N, mean_N, guess_N = (np.empty(len(value_N)) for _ in range(3))
    for part in range(FOLDS):
        held_N = np.arange(len(value_N)) % FOLDS == part
        surface = Surface(place_NF[~held_N], value_N[~held_N])
        mean_N[held_N], sd = surface.at(place_NF[held_N])
        guess_N[held_N] = value_N[~held_N].mean()
        z_N[held_N] = (value_N[held_N] - mean_N[held_N]) / np.hypot(sd, surface.noise)
    left, spread = np.sum((value_N - mean_N) ** 2), np.sum((value_N - guess_N) ** 2)
    return Calibration(z_N, float(1 - left / spread) if spread > 0 else float("nan"))


def sensitivity(surface: Surface) -> Floats:
    """Share of the variance of the surface's mean that each setting accounts for, with all its interactions.

    Total Sobol indices (Saltelli et al. 2010, by SciPy); NaN if the surface is flat.
    """
    uniform: Any = distributions.uniform()
    with np.errstate(divide="ignore", invalid="ignore"):
        found = distributions.sobol_indices(
            func=lambda place_FM: surface.at(place_FM.T)[0][None],
            n=SAMPLES,
            dists=[uniform] * surface.factors,
            rng=0,
        )
    return np.asarray(found.total_order, dtype=np.float64).reshape(-1)
