"""Algorithm 1 of Wang et al. (2018) on the edges of graphs: a dense inverse against random projections.

    python tests/benchmarks/papers/wang2018_laplacian.py [--most 4000]

Prints the seconds for one block of edges (processor time), the exponents between sizes, and the error of the whole
sample. The paper states O(n^3) and, for Laplacians, O(d log^2 n); conjugate gradients stand in for its solver.
"""

import argparse
import time

import numpy as np
from laplacian import edge_scores, random_graph, sample_edges


def dense_scores(edges, kept, p, ridge):
    """Return the same scores by an inverse."""
    inverse = np.linalg.inv(kept.laplacian(kept.weight / p).toarray() + ridge * np.eye(edges.n_vertices))
    return edges.weight * (
        inverse[edges.first, edges.first] + inverse[edges.second, edges.second] - 2 * inverse[edges.first, edges.second]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--most", type=int, default=4000, help="largest number of vertices")
    most = parser.parse_args().most
    sizes = [n for n in (250, 500, 1000, 2000, 4000) if n <= most]
    seconds: dict[str, list[float]] = {"inverse": [], "projections": []}
    print(f"{'vertices':>9} {'edges':>9} {'inverse s':>10} {'projections s':>14} {'largest ratio':>14} {'least':>6}")
    for n in sizes:
        graph = random_graph(n, 40 * n)
        ones, made = np.ones(len(graph)), {}
        for name, work in (
            ("inverse", lambda g=graph, o=ones: dense_scores(g, g, o, 1e-3)),
            ("projections", lambda g=graph, o=ones: edge_scores(g, g, o, 1e-3, 100, 0)),
        ):
            began = time.process_time()
            made[name] = work()
            seconds[name].append(time.process_time() - began)
        ratio = made["projections"] / made["inverse"]
        print(
            f"{n:>9} {len(graph):>9} {seconds['inverse'][-1]:>10.2f} {seconds['projections'][-1]:>14.2f} "
            f"{ratio.max():>14.2f} {ratio.min():>6.2f}",
            flush=True,
        )
    for name, values in seconds.items():
        slope = np.polyfit(np.log(sizes), np.log(values), 1)[0] if len(sizes) > 1 else float("nan")
        print(f"{name}: exponent {slope:.2f} in the number of vertices")
    n = min(500, most)
    graph = random_graph(n, 200 * n)
    kept, p = sample_edges(graph, 0.5, 2 * np.log(n), 1e-3, 2000, 100)
    full = graph.laplacian(graph.weight).toarray() + 1e-3 * np.eye(n)
    part = graph[kept].laplacian(graph.weight[kept] / p).toarray() + 1e-3 * np.eye(n)
    root = np.linalg.inv(np.linalg.cholesky(full))
    error = np.abs(np.linalg.eigvalsh(root @ part @ root.T) - 1).max()
    print(f"{n} vertices: {len(kept)} of {len(graph)} edges kept, error {error:.3f}")


if __name__ == "__main__":
    main()
