"""Faults planned from a seed: what is done to whom, when, and how a run may end in which it was done."""

import random
from dataclasses import dataclass

from tests.deploy.chaos_jobs import KINDS

ACTIONS = {
    "worker": ("KILL", "KILL", "TERM", "STOP"),
    "machine": ("KILL", "TERM"),
    "scheduler": ("KILL", "TERM", "STOP"),
    "driver": ("KILL", "KILL", "TERM", "INT", "STOP"),
    "link": ("CUT", "STALL"),
    "disk": ("FILL",),
    "checkpoint": ("DAMAGE",),
    "clock": ("ADVANCE", "SET BACK"),
    "source": ("CHANGE",),
    "store": ("CUT", "STALL"),
}
"""What is done to whom: a signal, or what has a name of its own.

A machine is a nanny with its worker; a link is that of such a machine, or of the driver, with the scheduler; the store
is the link of all processes with a remote source. What is stopped, cut or full goes on after a pause; the clock is an
hour later or earlier from then on, and what a source was is put back when the run is over.
"""

SHARES = {
    "worker": 3,
    "machine": 2,
    "scheduler": 2,
    "driver": 3,
    "link": 3,
    "disk": 1,
    "checkpoint": 1,
    "clock": 1,
    "source": 1,
    "store": 4,
}
"""How often."""

CLUSTER = ("machine", "scheduler", "link")
"""What there is only with a cluster."""

LASTING = {"STOP", "CUT", "STALL", "FILL"}


@dataclass(frozen=True)
class Fault:
    """One fault: to whom, and when, counted from the first line of a stage or by new nodes in the checkpoint."""

    target: str
    action: str
    stage: str
    delay: float
    nodes: int | None
    pause: float
    which: int

    def __str__(self) -> str:
        when = f"{self.delay:.2f} s after {self.stage}" if self.nodes is None else f"at node {self.nodes}"
        pause = f", continued after {self.pause:.1f} s" if self.action in LASTING else ""
        return f"{self.action} to {self.target} {self.which} {when}{pause}"


@dataclass(frozen=True)
class Plan:
    """The faults of each run of the job; a last run has none."""

    seed: int
    kind: str
    cluster: str
    runs: tuple[tuple[Fault, ...], ...]
    damages: bool
    """Whether a bit of a file flips after each run: of checkpoint or results, at the end of the results."""

    def __str__(self) -> str:
        runs = "; then ".join(" and ".join(map(str, faults)) for faults in self.runs)
        damage = ", a bit of a file flipped after each" if self.damages else ""
        return f"seed {self.seed}, {self.kind} on {self.cluster} workers: {runs}{damage}"


def plan_of(seed: int) -> Plan:
    """Return the plan of a seed; the kinds of jobs take turns."""
    rng = random.Random(seed)
    name, kind = list(KINDS.items())[seed % len(KINDS)]
    cluster = "local" if rng.random() < 0.25 else "plain"
    absent = CLUSTER if cluster == "local" else ()
    absent += () if kind.is_remote else ("store",)
    absent += ("source",) if kind.in_panels else ()
    targets = [target for target in ACTIONS if target not in absent]

    def fault() -> Fault:
        target = rng.choices(targets, [SHARES[one] for one in targets])[0]
        action = rng.choice(ACTIONS[target])
        nodes = rng.randint(1, 12) if rng.random() < 0.4 else None
        delay = rng.uniform(0, 0.6) ** 2
        # Now and then a worker, or its link, is away for longer than the job has patience.
        pause = 60.0 if target in ("worker", "link", "store") and rng.random() < 0.2 else rng.uniform(0.2, 4)
        # Of a source that changes before it is opened nobody can know.
        stage = rng.choice(kind.stages[target == "source" :])
        return Fault(target, action, stage, delay, nodes, pause, rng.randint(0, 2 if target == "link" else 1))

    runs = tuple(tuple(fault() for _ in range(rng.choice((1, 1, 2)))) for _ in range(rng.randint(1, 2)))
    return Plan(seed, name, cluster, runs, damages=rng.random() < 0.5)


def codes_of(faults: tuple[Fault, ...]) -> set[int]:
    """Return the exit codes with which a run may end in which these faults were done."""
    codes, n_away = {0}, 0
    for fault in faults:
        lost = (fault.target == "scheduler" and fault.action != "STOP") or (fault.target == "link" and fault.which == 2)
        late = fault.target in ("worker", "link", "store") and fault.action in LASTING and fault.pause > 30
        n_away += fault.target in ("machine", "link")
        # Messages of Dask to the driver may have to wait for the time that the clock showed before.
        if lost or late or n_away > 1 or fault.action == "SET BACK":
            codes.add(75)
        if lost and fault.stage == "start":
            codes.add(1)  # there was no scheduler to begin with
        if fault.target in ("disk", "source") or (fault.target == "store" and late):
            codes.add(1)
        if fault.target == "driver":
            codes |= {"KILL": {-9}, "TERM": {143}, "INT": {130}, "STOP": set()}[fault.action]
    return codes
