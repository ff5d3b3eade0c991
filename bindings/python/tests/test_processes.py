"""Forks, and the end of the interpreter."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from waiting import idle, until, waiting

import fairgate

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")


def in_child(body: object) -> int:
    """Runs something in a forked child; its exit status."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            body()  # type: ignore[operator]
            status = 0
        except BaseException as error:
            print(f"in the child: {error!r}", file=sys.stderr, flush=True)
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@needs_fork
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
async def test_a_child_starts_with_all_slots_free_and_nobody_waiting(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    scheduler = fairgate.Scheduler(1, journal=journal, budgets={"a": 5000})
    slot = await scheduler.acquire("a")
    waiter = asyncio.create_task(scheduler.wrap(lambda: "ran", agent_id="b"))
    await until(waiting(scheduler, 1))

    def child() -> None:
        assert idle(scheduler)
        with scheduler.slot("c"):
            # The parent's slot, given back here, ends nobody's.
            slot.release()
            assert scheduler.snapshot().in_flight == 1
        assert idle(scheduler)
        budget = scheduler.snapshot().agents["a"].budget
        assert budget is not None and budget.left == 5000
        scheduler.flush_journal()
        scheduler.close()

    assert in_child(child) == 0
    # The parent has noticed nothing.
    assert slot.held and scheduler.snapshot().waiting == 1
    slot.release()
    assert await waiter == "ran"
    scheduler.close()
    agents = [json.loads(line).get("agent") for line in journal.read_text().splitlines()]
    assert "b" in agents and "c" not in agents, "the journal is the parent's alone"


@needs_fork
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_while_the_journal_is_written_does_not_hang(tmp_path: Path) -> None:
    scheduler = fairgate.Scheduler(1, journal=tmp_path / "journal.jsonl")

    def child() -> None:
        for _ in range(10):
            with scheduler.slot("c"):
                pass

    for _ in range(20):
        for _ in range(50):
            with scheduler.slot("a"):
                pass
        assert in_child(child) == 0
    scheduler.close()


@needs_fork
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_the_programs_scheduler_works_in_a_child_whatever_the_parents_threads_do() -> None:
    from fairgate import convenience

    with convenience._lock:
        # As if another thread were just in there.
        assert in_child(lambda: fairgate.get_scheduler().acquire_blocking("a").release()) == 0


def python(program: str, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-X", "faulthandler", "-c", textwrap.dedent(program), *args],
        capture_output=True,
        text=True,
        timeout=60,
    )


ENDS = {
    "a daemon thread still waits": """
        import threading, fairgate
        scheduler = fairgate.Scheduler(1)
        slot = scheduler.acquire_blocking("a")
        thread = threading.Thread(target=lambda: scheduler.acquire_blocking("b"), daemon=True)
        thread.start()
        while scheduler.snapshot().waiting == 0:
            pass
        slot.__class__.__del__ = lambda slot: None
        print("done")
    """,
    "a slot is held by a global": """
        import warnings, fairgate
        warnings.simplefilter("ignore")
        scheduler = fairgate.Scheduler(1)
        slot = scheduler.acquire_blocking("a")
        print("done")
    """,
    "a task still waits": """
        import asyncio, fairgate
        scheduler = fairgate.Scheduler(1)
        async def main():
            slot = await scheduler.acquire("a")
            global task
            task = asyncio.create_task(scheduler.wrap(print, "never", agent_id="b"))
            await asyncio.sleep(0)
            return slot
        slot = asyncio.run(main())
        assert scheduler.snapshot().waiting == 0
        slot.release()
        print("done")
    """,
    "the clock is about to tell the time": """
        import asyncio, fairgate
        scheduler = fairgate.Scheduler(5, rates={"requests": "600/s"}, burst_seconds=1)
        async def call():
            async with scheduler.slot("a"):
                pass
        async def main():
            await asyncio.gather(*(call() for _ in range(600)))
        asyncio.run(main())
        print("done")
    """,
    "threads outlive the main thread": """
        import threading, fairgate
        scheduler = fairgate.Scheduler(1)
        def body():
            for _ in range(200):
                with scheduler.slot("a"):
                    pass
        threads = [threading.Thread(target=body) for _ in range(4)]
        for thread in threads:
            thread.start()
        print("done")
    """,
}


@pytest.mark.parametrize("how", ENDS)
def test_the_interpreter_ends_cleanly_when(how: str) -> None:
    run = python(ENDS[how])
    assert (run.returncode, run.stdout, run.stderr) == (0, "done\n", "")


def test_the_journal_is_whole_when_the_program_ends(tmp_path: Path, fairgate_binary: str) -> None:
    journal = tmp_path / "journal.jsonl"
    run = python(
        """
        import sys, fairgate
        scheduler = fairgate.Scheduler(1, journal=sys.argv[1])
        for _ in range(1000):
            with scheduler.slot("a"):
                pass
        """,
        str(journal),
    )
    assert (run.returncode, run.stderr) == (0, "")
    replay = subprocess.run([fairgate_binary, "replay", str(journal)], capture_output=True, timeout=60)
    assert len(replay.stdout.splitlines()) == 1000


def test_an_interrupt_ends_the_wait_of_the_main_thread() -> None:
    run = python(
        """
        import os, signal, threading, fairgate
        scheduler = fairgate.Scheduler(1)
        done = threading.Event()
        def hold():
            with scheduler.slot("a"):
                while scheduler.snapshot().waiting == 0:
                    pass
                os.kill(os.getpid(), signal.SIGINT)
                done.wait()
        thread = threading.Thread(target=hold)
        thread.start()
        while scheduler.snapshot().in_flight == 0:
            pass
        try:
            scheduler.acquire_blocking("b")
        except KeyboardInterrupt:
            print("interrupted,", scheduler.snapshot().waiting, "wait")
        done.set()
        thread.join()
        with scheduler.slot("c"):
            print("and on")
        """
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, "interrupted, 0 wait\nand on\n", "")
