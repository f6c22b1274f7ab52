"""Threads that work along with the caller's, round by round."""

import math
import os
import subprocess
import sys
import threading
import time

import pytest

from sketchselect.execution import team as teams
from sketchselect.execution.team import Team

# Before any test could leave fewer.
PROCESSORS = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()


@pytest.fixture(params=[0, 1, 3])
def team(request):
    before = threading.active_count()
    team = Team(request.param)
    assert threading.active_count() == before + request.param
    yield team
    team.close()
    assert threading.active_count() == before


def test_every_thread_works_once_a_round_also_after_a_long_rest(team, monkeypatch):
    monkeypatch.setattr(teams, "MOST_POLLING", 0.01)
    done = []
    for pause in (0.0, 0.0, 0.05):
        time.sleep(pause)
        done.clear()
        team.run(lambda: done.append(threading.current_thread()))
        assert len(done) == len(set(done)) == 1 + len(team._threads)


def test_a_round_ends_with_its_slowest_thread(team, monkeypatch):
    monkeypatch.setattr(teams, "MOST_POLLING", 0.01)
    done = []

    def work():
        if threading.current_thread() is not threading.main_thread():
            time.sleep(0.05)
        done.append(1)

    team.run(work)
    assert len(done) == 1 + len(team._threads)


@pytest.mark.skipif(not PROCESSORS, reason="no processors to choose from")
def test_threads_have_a_processor_each_at_first_and_every_processor_later(team):
    seen = []
    team._settled = math.inf
    team.run(lambda: seen.append(tuple(os.sched_getaffinity(0))))
    assert os.sched_getaffinity(0) == PROCESSORS
    if team._threads:
        assert {len(processors) for processors in seen} == {1}
        assert len(set(seen)) == min(len(seen), len(PROCESSORS))
    team._settled = 0.0
    seen.clear()
    team.run(lambda: seen.append(os.sched_getaffinity(0)))
    assert all(processors == PROCESSORS for processors in seen)


@pytest.mark.skipif(not PROCESSORS, reason="no processors to choose from")
def test_an_interrupted_round_gives_the_caller_its_processors_back(team):
    team._settled = math.inf

    def work():
        if threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        team.run(work)
    team.wait()
    assert os.sched_getaffinity(0) == PROCESSORS


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no timer slack")
def test_waiting_leaves_the_caller_the_timer_slack_it_had(team):
    slack = teams._prctl()
    before = slack(30, 0, 0, 0, 0)
    try:
        slack(29, 70_000, 0, 0, 0)
        slacks = []
        team.run(lambda: slacks.append(slack(30, 0, 0, 0, 0)))
        assert slack(30, 0, 0, 0, 0) == 70_000
        assert 1 not in slacks
    finally:
        slack(29, before, 0, 0, 0)


def test_a_thread_that_cannot_start_ends_those_before_it(monkeypatch):
    before, start, started = threading.active_count(), threading.Thread.start, []

    def second_fails(thread):
        if started:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", second_fails)
    with pytest.raises(RuntimeError, match="start new thread"):
        Team(3)
    assert threading.active_count() == before


def test_a_lost_notice_delays_a_round_but_does_not_hold_it_up(team, monkeypatch):
    monkeypatch.setattr(teams, "MOST_POLLING", 0.0)
    monkeypatch.setattr(teams, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(team._changed, "notify_all", lambda: None)
    time.sleep(0.6)  # until sleepers look again in the shorter time
    done = []
    team.run(lambda: done.append(threading.current_thread()))
    assert len(done) == 1 + len(team._threads)


def test_threads_that_nobody_ended_end_with_python():
    code = "from sketchselect.execution.team import Team; Team(2).run(lambda: None)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
