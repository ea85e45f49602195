"""Every number of the catalogue from its definition, in plain loops over numpy arrays. Shares no code with the package.

`catalogue` takes raw features and labels, not moments, and forms the K × K matrices that the package never holds.
"""

import itertools
import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

Array = NDArray[np.float64]


def catalogue(
    features: Array,
    labels: NDArray[np.int64],
    *,
    weight: Array,
    bias: Array | None = None,
    validation: tuple[Array, NDArray[np.int64]] | None = None,
    min_count: int = 1,
) -> dict[str, float]:
    kept = [c for c in sorted(set(labels.tolist())) if (labels == c).sum() >= min_count]
    groups = [features[labels == c] for c in kept]
    means = np.stack([group.mean(0) for group in groups])
    scatters = [((group - mean) ** 2).sum() for group, mean in zip(groups, means, strict=True)]
    variances = [scatter / len(group) for scatter, group in zip(scatters, groups, strict=True)]
    tokens = sum(len(group) for group in groups)
    centred = means - means.mean(0)
    head = weight[kept]
    everything = np.concatenate(groups)
    values = {
        **of_all_tokens(everything, sum(scatters)),
        **cdnv_family(means, variances),
        **directional(groups, means, variances, tokens),
        **scatter_family(groups, means, centred, tokens),
        "norm_cv": variation(norms(centred)),
        "lognorm_cv": variation(np.log(norms(centred))),
        "lognorm_mean": sum(np.log(norms(centred))) / len(kept),
        "duality_frobenius": math.sqrt(
            ((head / math.sqrt((head**2).sum()) - centred / math.sqrt((centred**2).sum())) ** 2).sum()
        ),
        "head_etf_error": frame_error((head - head.mean(0)) @ (head - head.mean(0)).T),
        "vci": vci(groups, means),
        **frequency([len(group) for group in groups], means, head),
        **angles("cosine", centred),
        "cosine_error": cosine_error(centred),
        **log_distances("logdist", centred),
        **log_distances("logdist_uncentred", means),
        **duality(head, centred),
        "etf_error": frame_error(centred @ centred.T),
        "etf_floor": floor(len(kept), features.shape[1]),
        "head_norm_cv": variation(norms(head - head.mean(0))),
        **{
            f"head_{name}": value
            for name, value in angles("cosine", head - head.mean(0)).items()
            if name != "cosine_cv"
        },
        **{f"head_{name}": value for name, value in log_distances("logdist", head - head.mean(0)).items()},
        "head_sum": norms(weight.sum(0)[None])[0] / math.sqrt((weight**2).sum()),
        "head_effective_rank": effective_rank(weight),
        "effective_rank": effective_rank(centred),
        "effective_rank_share": effective_rank(centred) / min(len(kept) - 1, features.shape[1]),
        **curvature(features, weight, np.zeros(len(weight)) if bias is None else bias),
    }
    if validation is not None:
        values |= decisions(*validation, kept, means, head, np.zeros(len(kept)) if bias is None else bias[kept])
        offsets = np.zeros(len(weight)) if bias is None else bias
        values["ncc_loss"] = ncc_loss(groups, kept, means, validation, weight, offsets)
    return values


def norms(rows: Array) -> Array:
    return np.array([math.sqrt(sum(x * x for x in row)) for row in rows])


def variation(values: Array) -> float:
    mean = sum(values) / len(values)
    return math.sqrt(sum((v - mean) ** 2 for v in values) / len(values)) / mean


def mean_and_std(values: list[float]) -> tuple[float, float]:
    mean = math.fsum(values) / len(values)
    return mean, math.sqrt(math.fsum((v - mean) ** 2 for v in values) / len(values))


def cdnv_family(means: Array, variances: list[float]) -> dict[str, float]:
    plain, squared, logs = [], [], []
    for i, j in itertools.combinations(range(len(means)), 2):
        distance = ((means[i] - means[j]) ** 2).sum()
        if distance == 0:
            continue
        term = (variances[i] + variances[j]) / 2
        plain.append(term / distance)
        squared.append(term / distance**2)
        if term > 0:
            logs.append(math.log(term / distance))
    return {
        "cdnv": math.fsum(plain) / len(plain),
        "cdnv_k2": math.fsum(squared) / len(squared),
        "cdnv_log": math.fsum(logs) / len(logs),
    }


def directional(groups: list[Array], means: Array, variances: list[float], tokens: int) -> dict[str, float]:
    dim = means.shape[1]
    within = np.zeros((dim, dim))
    for group, mean in zip(groups, means, strict=True):
        for feature in group:
            within += np.outer(feature - mean, feature - mean) / tokens
    differences = [one - other for one, other in itertools.combinations(means, 2)]
    terms = [float(d @ within @ d) / float(d @ d) ** 2 for d in differences if d.any()]
    value = math.fsum(terms) / len(terms)
    return {"directional_cdnv": value, "directional_gain": dim * value / cdnv_family(means, variances)["cdnv"]}


def cosine_error(rows: Array) -> float:
    units = rows / norms(rows)[:, None]
    gaps = [abs(float(u @ v) + 1 / (len(rows) - 1)) for u, v in itertools.combinations(units, 2)]
    return math.fsum(gaps) / len(gaps)


def scatter_family(groups: list[Array], means: Array, centred: Array, tokens: int) -> dict[str, float]:
    dim = means.shape[1]
    within, between = np.zeros((dim, dim)), np.zeros((dim, dim))
    for group, mean in zip(groups, means, strict=True):
        for feature in group:
            within += np.outer(feature - mean, feature - mean) / tokens
    for mean in centred:
        between += np.outer(mean, mean) / len(centred)
    inverse = np.linalg.pinv(between, rcond=dim * np.finfo(float).eps, hermitian=True)
    return {
        "scatter_ratio": np.trace(within) / np.trace(between),
        "scatter_pinv": np.trace(within @ inverse) / len(means),
    }


def of_all_tokens(features: Array, within: float) -> dict[str, float]:
    """Of all features at once, whatever their class; `within` is the scatter within classes."""
    mean = sum(features) / len(features)
    covariance = sum(np.outer(feature - mean, feature - mean) for feature in features) / len(features)
    values = np.linalg.eigvalsh(covariance)
    return {
        "within_share": within / sum(float((feature - mean) @ (feature - mean)) for feature in features),
        **spectra(features),
        "participation": sum(values) ** 2 / sum(values**2),
        "dispersion": 1 - mean_cosine(features),
        "anisotropy": float(mean @ mean) / (sum(float(feature @ feature) for feature in features) / len(features)),
    }


def spectra(features: Array) -> dict[str, float]:
    """Of raw features, by singular values alone: Garrido's rank, and rank and decay as reptrix computes them."""
    tokens, dim = features.shape
    found = {"rankme": effective_rank(features), "rankme_share": effective_rank(features) / min(tokens, dim)}
    values = np.linalg.svd(features - features.mean(0), compute_uv=False) ** 2 / tokens
    values = np.array([value for value in values if value > 1e-12 * max(values)])
    shares = values / sum(values)
    found["rankme_covariance"] = math.exp(-sum(p * math.log(p) for p in shares))
    found["spectral_entropy"] = -sum(p * math.log(p) for p in shares) / math.log(dim)
    if len(values) >= 13:
        found["alpha_req"] = alpha_req(values)
    return found


def alpha_req(values: Array) -> float:
    """The normal equations of log λ_r = b − α log r, weighted by 1/r, over the ranks r from 11 to 100."""
    ranks = range(11, min(len(values), 100) + 1)
    x = np.array([[-math.log(rank), 1.0] for rank in ranks])
    y = np.array([math.log(values[rank - 1]) for rank in ranks])
    weights = np.diag([1 / rank for rank in ranks])
    alpha, _ = np.linalg.solve(x.T @ weights @ x, x.T @ weights @ y)
    return float(alpha)


def vci(groups: list[Array], means: Array) -> float:
    everything = np.concatenate(groups)
    total = np.cov(everything.T, bias=True)
    between = np.zeros_like(total)
    for group, mean in zip(groups, means, strict=True):
        offset = mean - everything.mean(0)
        between += len(group) / len(everything) * np.outer(offset, offset)
    return 1 - np.trace(np.linalg.pinv(total, hermitian=True) @ between) / np.linalg.matrix_rank(between, tol=1e-10)


def frequency(counts: list[int], means: Array, head: Array) -> dict[str, float]:
    """Every class predicted by a ridge regression that was fitted without it, on means centred without it."""
    y = np.log(np.array(counts, dtype=float))
    centred = means - means.mean(0)
    if np.ptp(y) == 0:
        return {}
    penalty = 0.01 * (centred**2).sum() / means.shape[1] * np.eye(means.shape[1])
    errors, spread = 0.0, 0.0
    for left_out in range(len(y)):
        others = [c for c in range(len(y)) if c != left_out]
        middle = means[others].mean(0)
        x, target = means[others] - middle, y[others] - y[others].mean()
        slopes = np.linalg.solve(x.T @ x + penalty, x.T @ target)
        errors += (y[left_out] - y[others].mean() - (means[left_out] - middle) @ slopes) ** 2
        spread += (y[left_out] - y[others].mean()) ** 2
    return {
        "frequency_r2": 1 - errors / spread,
        "norm_frequency_r": float(np.corrcoef(norms(centred), y)[0, 1]),
        "head_norm_frequency_r": float(np.corrcoef(norms(head), y)[0, 1]),
    }


def mean_cosine(features: Array) -> float:
    units = features / norms(features)[:, None]
    cosines = [float(one @ other) for one, other in itertools.combinations(units, 2)]
    return math.fsum(cosines) / len(cosines)


def curvature(
    features: Array, weight: Array, bias: Array, *, scale: float = 1.0, softcap: float | None = None
) -> dict[str, float]:
    """Σ_{s,t} ⟨w_s, w_t⟩ tr H_st with H the Hessian in the logits of the expected cross-entropy, times ‖h‖²."""
    total = squares = 0.0
    rows = scale * weight
    products = rows @ rows.T
    for feature in features:
        logits = scale * (weight @ feature + bias)
        slopes = np.ones_like(logits)
        if softcap is not None:
            slopes = 1 - np.tanh(logits / softcap) ** 2
            logits = softcap * np.tanh(logits / softcap)
        chances = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
        square = float(feature @ feature)
        hessian = slopes[:, None] * (np.diag(chances) - np.outer(chances, chances)) * slopes
        total += square * float((hessian * products).sum())
        squares += square
    value, mean = total / len(features), squares / len(features)
    return {"curvature": value, "curvature_relative": value / (mean * (rows**2).sum() / len(rows))}


def angles(name: str, rows: Array) -> dict[str, float]:
    units = rows / norms(rows)[:, None]
    mean, std = mean_and_std([float(u @ v) for u, v in itertools.combinations(units, 2)])
    return {f"{name}_mean": mean, f"{name}_std": std, f"{name}_cv": std / mean}


def log_distances(name: str, rows: Array) -> dict[str, float]:
    units = rows / norms(rows)[:, None]
    distances = [math.sqrt(((u - v) ** 2).sum()) for u, v in itertools.combinations(units, 2)]
    mean, std = mean_and_std([math.log(1 / distance) for distance in distances if distance > 0])
    return {f"{name}_mean": mean, f"{name}_std": std, f"{name}_cv": std / mean}


def duality(head: Array, centred: Array) -> dict[str, float]:
    cosines = [float(w @ m) / math.sqrt(float(w @ w) * float(m @ m)) for w, m in zip(head, centred, strict=True)]
    mean, std = mean_and_std(cosines)
    return {
        "duality_cos_mean": mean,
        "duality_cos_std": std,
        "duality_cos_cv": std / mean,
        "duality_error": frame_error(head @ centred.T),
    }


def frame_error(gram: Array) -> float:
    classes = len(gram)
    simplex = (np.eye(classes) - np.ones((classes, classes)) / classes) / math.sqrt(classes - 1)
    return math.sqrt(((gram / math.sqrt((gram**2).sum()) - simplex) ** 2).sum())


def floor(classes: int, dim: int) -> float:
    return math.sqrt(2 - 2 * math.sqrt(dim / (classes - 1))) if classes - 1 > dim else 0.0


def effective_rank(rows: Array) -> float:
    singular = np.linalg.svd(rows, compute_uv=False)
    shares = [s / singular.sum() for s in singular if s > 1e-12 * singular.max()]
    return math.exp(-sum(p * math.log(p) for p in shares))


def ncc_loss(
    groups: list[Array],
    kept: list[int],
    means: Array,
    validation: tuple[Array, NDArray[np.int64]],
    weight: Array,
    bias: Array,
) -> float:
    """τ where the derivative of the training loss is 0; then the loss on validation, less that of all logits."""
    tokens = sum(len(group) for group in groups)
    priors = [math.log(len(group) / tokens) for group in groups]

    def scores(feature: Array) -> Array:
        return np.array([-float(((feature - mean) ** 2).sum()) / 2 for mean in means])

    trained = [(scores(feature), place) for place, group in enumerate(groups) for feature in group]

    def slope(tau: float) -> float:
        total = 0.0
        for values, place in trained:
            logits = tau * values + priors
            chances = np.exp(logits - logits.max())
            total += float(chances @ values / chances.sum()) - values[place]
        return total / tokens

    tau = brentq(slope, 1e-9, 1e3, xtol=1e-15, rtol=1e-14)
    losses = []
    for feature, label in zip(*validation, strict=True):
        if label in kept:
            logits = [tau * value + prior for value, prior in zip(scores(feature), priors, strict=True)]
            own = [float(row @ feature) + b for row, b in zip(weight, bias, strict=True)]
            losses.append(log_sum(logits) - logits[kept.index(label)] - log_sum(own) + own[label])
    return math.fsum(losses) / len(losses)


def log_sum(logits: list[float]) -> float:
    return max(logits) + math.log(math.fsum(math.exp(logit - max(logits)) for logit in logits))


def decisions(
    features: Array, labels: NDArray[np.int64], kept: list[int], means: Array, head: Array, bias: Array
) -> dict[str, float]:
    agreed = nearest_right = head_right = judged = 0
    for feature, label in zip(features, labels, strict=True):
        if label not in kept:
            continue
        judged += 1
        chosen = kept[max(range(len(kept)), key=lambda c: float(head[c] @ feature) + bias[c])]
        nearest = kept[min(range(len(kept)), key=lambda c: float(((feature - means[c]) ** 2).sum()))]
        agreed += chosen == nearest
        head_right += chosen == label
        nearest_right += nearest == label
    return {
        "agreement": agreed / judged,
        "model_accuracy": head_right / judged,
        "ncc_accuracy": nearest_right / judged,
    }
