"""Offline feature weights (GFW of Huang et al. 2015), with p = 2 and p = 1, and the two side by side (their Figure 1).

Run ``python tests/benchmarks/papers/gfw.py`` for ridge against lasso on random subsets of text.
"""

import time

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import svds

from sketchselect.selectors.sketched import ridge_weights
from sketchselect.solvers.homotopy import Design, lasso_coefficients


def top_directions(X, n_components: int):
    """Return s_i^2 and v_i of the exact SVD, descending, by ARPACK from a fixed start."""
    start = np.random.default_rng(0).standard_normal(min(X.shape))
    _, s, vt = svds(X.astype(np.float64), k=n_components, v0=start)
    order = np.argsort(-s, kind="stable")
    return s[order] ** 2, vt[order]


def gfw_ridge(X, n_components: int, alpha="auto"):
    """Return the offline scores with p = 2 (Lemma 3.3)."""
    return ridge_weights(*top_directions(X, n_components), n_components, alpha)[0]


def gfw_lasso(X, n_components: int, n_nonzero: int = 200):
    """Return the offline scores with p = 1: the left singular vectors regressed on the rows."""
    start = np.random.default_rng(0).standard_normal(min(X.shape))
    left = svds(X.astype(np.float64), k=n_components, v0=start)[0]
    design = Design(X.astype(np.float64), center=False)
    return np.max([np.abs(lasso_coefficients(design, target, n_nonzero)) for target in left.T], axis=0)


def ridge_against_lasso(X, n_components: int, n_features: int, n_nonzero: int = 200):
    """Return ``(ridge columns, lasso columns, seconds of ridge, seconds of lasso)``; unused columns by ridge weight."""
    begin = time.perf_counter()
    ridge = gfw_ridge(X, n_components)
    middle = time.perf_counter()
    lasso = gfw_lasso(X, n_components, n_nonzero)
    end = time.perf_counter()
    by_lasso = np.lexsort((-ridge, -lasso))[:n_features]
    return np.argsort(-ridge, kind="stable")[:n_features], by_lasso, middle - begin, end - middle


def main() -> None:
    """Print NMI and seconds of both on random subsets of TDT2."""
    from real_data import DATA
    from sklearn.cluster import KMeans
    from sklearn.feature_extraction.text import TfidfTransformer
    from sklearn.metrics import normalized_mutual_info_score

    with np.load(DATA / "TDT2.npz") as z:
        counts = sp.csr_matrix((z["data"], z["indices"], z["indptr"]), shape=tuple(z["shape"]))
        labels = z["y"]
    rng = np.random.default_rng(0)
    k = len(np.unique(labels))
    wins = 0
    for subset in range(5):
        rows = rng.permutation(counts.shape[0])[:2000]
        X = TfidfTransformer(sublinear_tf=True).fit_transform(counts[rows])
        *chosen, ridge_seconds, lasso_seconds = ridge_against_lasso(X, k, 1000)
        found = [
            normalized_mutual_info_score(
                labels[rows], KMeans(k, n_init=3, random_state=0).fit_predict(X[:, columns].toarray())
            )
            for columns in chosen
        ]
        wins += found[1] >= found[0]
        print(
            f"subset {subset}: NMI ridge {found[0]:.3f}, lasso {found[1]:.3f}; lasso takes "
            f"{lasso_seconds / ridge_seconds:.0f} times as long; {len(np.intersect1d(*chosen))} of 1000 columns shared"
        )
    print(f"lasso at least as good on {wins} of 5 subsets")


if __name__ == "__main__":
    main()
