"""A build that was killed: what was finished is not compiled again."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time

from tests.unit.conftest import Workshop


def _build_in_a_group(workshop: Workshop) -> None:
    os.setpgrp()
    workshop.build(max_jobs=1)


def test_a_killed_build_goes_on_where_it_was(workshop: Workshop) -> None:
    stall = workshop.log.with_name("stall")
    stall.touch()  # the first unit is compiled, the second never ends
    process = multiprocessing.get_context("fork").Process(target=_build_in_a_group, args=(workshop,))
    process.start()
    assert process.pid is not None
    deadline = time.monotonic() + 60
    while workshop.compiles() < 2:
        assert time.monotonic() < deadline
        assert process.is_alive()
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.join()
    stall.unlink()
    assert not (workshop.root / "out" / "gfx1201" / "kernels.json").exists()

    resumed = workshop.build(max_jobs=1)
    assert (len(resumed.up_to_date) + len(resumed.cached), len(resumed.compiled)) == (1, 3)
    elsewhere = workshop.build("another-checkout")
    assert (len(elsewhere.cached), len(elsewhere.compiled)) == (4, 0)
    assert workshop.compiles() == 5  # 4 units and the one that was killed
    assert elsewhere.manifests["gfx1201"].read_bytes() == resumed.manifests["gfx1201"].read_bytes()
