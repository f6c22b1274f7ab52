"""Faults planned from a seed: what is done to whom, when, and how a run may end in which it was done."""

from __future__ import annotations

import random
from dataclasses import dataclass

STAGES = (
    "start",
    "summarize:",
    "write features:",
    "load rows for k-means:",
    "k-means:",
    "objective:",
    "block certificate:",
)

ACTIONS = {
    "worker": ("KILL", "KILL", "TERM", "STOP"),
    "machine": ("KILL", "TERM"),
    "scheduler": ("KILL", "TERM", "STOP"),
    "driver": ("KILL", "KILL", "TERM", "INT", "STOP"),
}
"""What is done to whom. A machine is a nanny with its worker; what is stopped goes on after a pause."""


@dataclass(frozen=True)
class Fault:
    """One signal: to whom, and when, counted from the first line of a stage or by new nodes in the checkpoint."""

    target: str
    action: str
    stage: str
    delay: float
    nodes: int | None
    pause: float
    which: int

    def __str__(self) -> str:
        when = f"{self.delay:.2f} s after {self.stage}" if self.nodes is None else f"at node {self.nodes}"
        pause = f", continued after {self.pause:.1f} s" if self.action == "STOP" else ""
        return f"SIG{self.action} to {self.target} {self.which} {when}{pause}"


@dataclass(frozen=True)
class Plan:
    """The faults of each run of the job; a last run has none."""

    seed: int
    cluster: str
    runs: tuple[tuple[Fault, ...], ...]
    damages: bool
    """Whether a bit of a checkpoint flips between the runs."""

    def __str__(self) -> str:
        runs = "; then ".join(" and ".join(map(str, faults)) for faults in self.runs)
        damage = ", a bit of a checkpoint flipped after each" if self.damages else ""
        return f"seed {self.seed} on {self.cluster} workers: {runs}{damage}"


def plan_of(seed: int) -> Plan:
    """Return the plan of a seed."""
    rng = random.Random(seed)
    cluster = "local" if rng.random() < 0.25 else "plain"
    targets = ("worker", "driver") if cluster == "local" else tuple(ACTIONS)

    def fault() -> Fault:
        target = rng.choice(targets)
        action = rng.choice(ACTIONS[target])
        nodes = rng.randint(1, 12) if rng.random() < 0.4 else None
        delay = rng.uniform(0, 0.6) ** 2
        # Now and then a worker freezes for longer than the job has patience.
        pause = 60.0 if target == "worker" and rng.random() < 0.2 else rng.uniform(0.2, 4)
        return Fault(target, action, rng.choice(STAGES), delay, nodes, pause, rng.randint(0, 1))

    runs = tuple(tuple(fault() for _ in range(rng.choice((1, 1, 2)))) for _ in range(rng.randint(1, 2)))
    return Plan(seed, cluster, runs, damages=rng.random() < 0.5)


def codes_of(faults: tuple[Fault, ...]) -> set[int]:
    """Return the exit codes with which a run may end in which these faults were done."""
    codes = {0}
    for fault in faults:
        lost = fault.target == "scheduler" and fault.action != "STOP"
        if lost or (fault.target == "worker" and fault.action == "STOP" and fault.pause > 30):
            codes.add(75)
        if lost and fault.stage == "start":
            codes.add(1)  # there was no scheduler to begin with
        if fault.target == "driver":
            codes |= {"KILL": {-9}, "TERM": {143}, "INT": {130}, "STOP": set()}[fault.action]
    if sum(fault.target == "machine" for fault in faults) > 1:
        codes.add(75)
    return codes
