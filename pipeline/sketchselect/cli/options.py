"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

CLUSTER_HELP = "local, threads, serial, env, the address of a Dask scheduler, or its scheduler file (.json)."
Cluster = Annotated[str, typer.Option("--scheduler", metavar="CLUSTER", help=CLUSTER_HELP)]
JobCluster = Annotated[
    str | None,
    typer.Option("--scheduler", metavar="CLUSTER", help="Replaces the job's execution.cluster."),
]
Workers = Annotated[int | None, typer.Option("--n-workers", min=1, help="Worker processes or threads (one per core).")]
Fresh = Annotated[bool, typer.Option("--fresh/--resume", help="Discard the results of an earlier run, or resume it.")]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Replace a key of the job, such as select.n_features=50; may be repeated. "
        "Paths are relative to the job file.",
    ),
]
Key = Annotated[str | None, typer.Option("--key", help="Name of the array inside the store.")]
StorageOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option",
        metavar="KEY=VALUE",
        help="An argument of the file system of a URL, such as anon=true or client_kwargs.endpoint_url=ADDRESS; "
        "may be repeated.",
    ),
]
Prepare = Annotated[
    list[str] | None,
    typer.Option(
        "--prepare", metavar="STEP", help='A prepare step, such as l2 or "library-size(target=1000)"; may be repeated.'
    ),
]
Fitted = Annotated[
    str | None, typer.Option("--fitted", help="Statistics of prepare steps from an earlier run (prepare.sks).")
]
Partition = Annotated[
    str | None, typer.Option("--partition-bytes", metavar="BYTES", help='Size of a partition, such as "128MiB".')
]
MaxDropped = Annotated[
    float, typer.Option("--max-dropped", min=0, max=1, help="Share of the rows that drop_rows may leave out.")
]
