"""Functions that labs import: `from vklab_course import check, hint, show, swap`.

Also imports the runtime, so that a lab can name `vklab.plan.memory.assign_offsets` at once. A child
that only compiles or dispatches imports neither, and starts in half the time. Visited by lab 00.
"""

import os
import sys

import vklab
from vklab.errors import SetupError

__version__ = "0.1.0"

if vklab.__version__ != __version__:
    raise SetupError(
        f"vklab-course {__version__} does not work with vklab {vklab.__version__}",
        f"pip install vklab=={__version__} vklab-course=={__version__}",
    )

if "VKLAB_CHILD_BARE" not in os.environ:
    from vklab.runtime import loading as _loading  # noqa: F401  (with it, all of the runtime)
    from vklab_course.attempt import attempt
    from vklab_course.banner import banner
    from vklab_course.check import check
    from vklab_course.children.run_kernel import Run, run_kernel
    from vklab_course.children.run_limited import run_limited
    from vklab_course.data import data
    from vklab_course.given import given
    from vklab_course.hint import hint
    from vklab_course.picture import picture
    from vklab_course.places import adopt_release as _adopt_release
    from vklab_course.predict import predict
    from vklab_course.show import show
    from vklab_course.showcase import showcase
    from vklab_course.student import keeping as _keeping
    from vklab_course.swap import swap
    from vklab_course.use import use

    if "IPython" in sys.modules and sys.modules["IPython"].get_ipython() is not None:
        _adopt_release()  # a student's notebook
        _keeping.watch(sys.modules["IPython"].get_ipython())

__all__ = [
    "Run",
    "attempt",
    "banner",
    "check",
    "data",
    "given",
    "hint",
    "picture",
    "predict",
    "run_kernel",
    "run_limited",
    "show",
    "showcase",
    "swap",
    "use",
]
