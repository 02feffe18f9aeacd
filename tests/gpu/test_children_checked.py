"""Plans made in the processes that tests start are checked as those of the tests are."""

from __future__ import annotations

from support.runs import child
from support.runs.two_drivers import both, drivers

COUNT = """
from support.checks import plan_checks
from support.runs.split_models import *
source, fed = diamond()
with vklab.load(source, devices=BOTH, place=DIAMOND) as session:
    session.run(fed)
    assert len(session.plan.chunks) == 5 <= plan_checks.counts["checked"], plan_checks.counts
    assert plan_checks.counts["split"] == plan_checks.counts["split and run"] == 1
    list(session.map([fed] * 3, in_flight=2))  # each frame has memory of its own
    assert plan_checks.counts["split and run"] == 3, plan_checks.counts
"""

# The barriers of every plan are lost on the second device, and the failure is swallowed.
BROKEN = """
import contextlib
from support.runs.split_models import *
from vklab.plan import barriers
barriers.find_barriers = lambda work: ()
nodes = [helper.make_node("Softmax", [f"v{k}"], [f"v{k + 1}"], f"n{k}") for k in range(4)]
source = model(nodes, [value("v0", (4, 8))], ["v4"])
place = {"n0": LAVAPIPE, "n[123]": SWIFTSHADER}
with contextlib.suppress(Exception), vklab.load(source, devices=BOTH, place=place) as session:
    session.run(random_array((4, 8)))
print("end")
"""

# On the way from lavapipe to SwiftShader nobody waits for what makes a value.
HASTY = """
import contextlib
from support.runs.split_models import *
from vklab.runtime.many import scheduler
order = scheduler.Order
scheduler.Order = lambda before, behind: order([() for _ in before], [])
source, fed = diamond()
with contextlib.suppress(Exception), vklab.load(source, devices=BOTH, place=DIAMOND) as session:
    session.run(fed)
print("end")
open_devices.close_all()
assert api.live_handles() == {}, api.live_handles()
"""


def test_each_stage_of_a_split_model_is_checked_in_a_child():
    both(COUNT)


def test_a_broken_planner_in_a_child_fails_the_test_that_started_it():
    done = child.run(BROKEN, **drivers())
    assert done.stdout == "end\n" and done.returncode == 1, done.stderr
    assert "plans that are wrong:" in done.stderr and "before it sees what was" in done.stderr
    alone = child.run(BROKEN, PLAN_CHECKS="off", **drivers())
    assert alone.returncode == 0 and not alone.stderr, alone.stderr


def test_stages_that_do_not_wait_fail_the_test_that_started_the_child():
    done = child.run(HASTY, **drivers())
    assert done.stdout == "end\n" and done.returncode == 1, done.stderr
    assert "read after write: chunk 0 (run) 'a', chunk 1 (run) 'a'" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
