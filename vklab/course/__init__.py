"""Functions that labs import: `from vklab.course import check, hint, show, swap`.

Also imports the runtime, so that a lab can name `vklab.plan.memory.assign_offsets` at once. A child
that only compiles or dispatches imports neither, and starts in half the time. Visited by lab 00.
"""

import os
import sys

if "VKLAB_CHILD_BARE" not in os.environ:
    from vklab.course.attempt import attempt
    from vklab.course.banner import banner
    from vklab.course.check import check
    from vklab.course.children.run_kernel import Run, run_kernel
    from vklab.course.children.run_limited import run_limited
    from vklab.course.data import data
    from vklab.course.hint import hint
    from vklab.course.picture import picture
    from vklab.course.places import adopt_release as _adopt_release
    from vklab.course.predict import predict
    from vklab.course.show import show
    from vklab.course.swap import swap
    from vklab.runtime import loading as _loading  # noqa: F401  (with it, all of the runtime)

    if "IPython" in sys.modules and sys.modules["IPython"].get_ipython() is not None:
        _adopt_release()  # a student's notebook

__all__ = [
    "Run",
    "attempt",
    "banner",
    "check",
    "data",
    "hint",
    "picture",
    "predict",
    "run_kernel",
    "run_limited",
    "show",
    "swap",
]
