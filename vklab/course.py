"""Forward `vklab.course` and its modules to vklab_course and vklab_labs, for one release.

Notebooks and releases made before the course left this package import it by its old names.
"""

import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

if find_spec("vklab_course") is None:
    raise ModuleNotFoundError(
        'the course is not installed: pip install "vklab-course[labs]", or '
        "`pip install . ./labs` in a clone",
        name="vklab_course",
    )
import vklab_course
import vklab_labs
from vklab.base import forward

__all__ = []
ROOMS = tuple(f"vklab.course.{room}." for room in ("figures", "labs"))


def _new_name(old: str) -> str:
    if not old.startswith("vklab.course."):
        return ""
    name = old.removeprefix("vklab.course.")
    if not old.startswith(ROOMS):
        return f"vklab_course.{name}"
    room, stem = name.split(".", 1)
    # A picture whose name a helper has, too, was renamed.
    files = [*([f"{stem}_pictures.py"] if room == "figures" else []), f"{stem}.py"]
    found = [
        path
        for file in files
        for folder in vklab_labs.__path__
        for path in Path(folder).glob(f"*/{file}")
    ]
    return ".".join(["vklab_labs", *found[0].with_suffix("").parts[-2:]]) if found else ""


class _Course(ModuleType):
    def __setattr__(self, name: str, value: object) -> None:
        # `import vklab.course.check` must not put the module where the function is.
        if not (isinstance(value, ModuleType) and name in vars(self)):
            super().__setattr__(name, value)


vklab_course.__class__ = _Course
forward.install(_new_name)
sys.modules[__name__] = vklab_course
for _room in ROOMS:
    _module = sys.modules[_room[:-1]] = ModuleType(_room[:-1])
    _module.__path__ = []
    setattr(vklab_course, _room.split(".")[-2], _module)
