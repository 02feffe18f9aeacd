"""Paths through the course in labs/README.md and labs/INSTRUCTORS.md, from labs/paths.toml.

`python tests/support/course/paths_page.py` writes both, the map, and the pictures of the inserts;
tests/course/test_paths.py compares.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

from vklab_course.picture import Picture
from vklab_course.student.paths import EVERYTHING, Course, CoursePath, Stop, hours
from vklab_labs.lab_07.workgroups import draw_banks
from vklab_labs.shared.course_map import draw_map
from vklab_labs.shared.diagram import Diagram
from vklab_labs.shared.lanes import draw_timeline
from vklab_labs.shared.roofline import Roof, draw_rooflines

LABS = Path(__file__).resolve().parents[3] / "labs"
WEEK_MINUTES = 180  # of labs in a week of a syllabus
MARKS = "<!-- {}: written by tests/support/course/paths_page.py -->", "<!-- end of {} -->"


def svg(drawn: Picture) -> str:
    """Return the SVG text of a picture."""
    (found,) = re.findall(r'data:image/svg\+xml,([^"]+)', drawn.html)
    return unquote(found) + "\n"


def with_block(text: str, name: str, block: str) -> str:
    """Return a page with the block of this name replaced."""
    start, end = (mark.format(name) for mark in MARKS)
    before, _, rest = text.partition(start)
    return f"{before}{start}\n\n{block}\n\n{end}{rest.partition(end)[2]}"


def link(stop: Stop) -> str:
    """Return a link to the notebook of a lab."""
    return f"[{stop.lab.number}]({stop.lab.name}.ipynb)"


def paths_block(course: Course) -> str:
    """Return the paths as a table, what each leaves out and reads in between, and the map."""
    drawn = course_map(course)
    rows = ["| path | for | labs, in this order | hours |", "|---|---|---|---|"]
    notes = []
    for path in course.whole():
        labs = " ".join(map(link, path.stops))
        name = f"**{path.title}** (`{path.name}`)"
        rows.append(f"| {name} | {path.for_whom} | {labs} | {hours(path.minutes)} |")
        pages = [
            f"[{page.title}]({page.page}) before {stop.lab.number}"
            for stop in path.stops
            for page in stop.inserts
        ]
        left = [
            f"{section.title!r} of {stop.lab.number}".replace("'", "*")
            for stop in path.stops
            for section in stop.left_out
        ]
        if pages:
            notes.append(f"* **{path.title}**: read {'; '.join(pages)}.")
        if left:
            notes.append(f"* **{path.title}** leaves out sections: {'; '.join(left)}.")
    return "\n".join([*rows, "", *notes, "", f"![{drawn.alt}](paths.svg)"])


def course_map(course: Course) -> Picture:
    """Return the map of all labs."""
    return draw_map(course.labs, [path for path in course.whole() if path.name != EVERYTHING])


def weeks(path: CoursePath) -> list[list[Stop]]:
    """Return the labs of each week: as many as fit into the minutes of a week, at least one."""
    found: list[list[Stop]] = []
    for stop in path.stops:
        full = found and sum(s.minutes for s in found[-1]) + stop.minutes > WEEK_MINUTES
        if full or not found:
            found.append([])
        found[-1].append(stop)
    return found


def syllabus_block(course: Course) -> str:
    """Return the weeks of each path as a table."""
    paths = course.whole()
    table = [weeks(path) for path in paths]
    rows = [
        f"| week | {' | '.join(f'{p.title}, {hours(p.minutes)}' for p in paths)} |",
        "|---" * (len(paths) + 1) + "|",
    ]
    for week in range(max(map(len, table))):
        cells = [
            " ".join(map(link, each[week])) + f" ({sum(s.minutes for s in each[week])} min)"
            if week < len(each)
            else ""
            for each in table
        ]
        rows.append(f"| {week + 1} | {' | '.join(cells)} |")
    return "\n".join(rows)


def insert_pictures() -> dict[str, Picture]:
    """Return the pictures of the inserts by the name of their file."""
    tasks = Diagram(420, 130)
    tasks.box((4, 4, 250, 122), "", "green", dashed=True, shade=0.12)
    at = {"a": (20, 16), "c": (150, 16), "b": (20, 78), "d": (290, 78), "e": (370, 47)}
    for start, end in (("a", "c"), ("b", "d"), ("c", "e"), ("d", "e")):
        (x, y), (right, low) = at[start], at[end]
        tasks.arrow((x + 40, y + 18), (right - 2, low + 18))
    for name, (x, y) in at.items():
        tasks.box((x, y, 40, 36), name, "green" if name in "acb" else "grey")
    steps = [("record", 0, 3, "blue"), ("submit", 3, 4.2, "orange")]
    arrows = [("host", 4, "device", 4.8), ("device", 10, "host", 10.2)]
    lists = {
        "rule, 0": [("p", 0, 3, "blue"), ("r", 3, 5, "green"), ("t", 5, 7, "green")],
        "rule, 1": [("q", 0, 3, "blue"), ("s", 3, 5, "green")],
        "best, 0": [("p", 0, 3, "blue"), ("q", 3, 6, "blue")],
        "best, 1": [("r", 0, 2, "green"), ("s", 2, 4, "green"), ("t", 4, 6, "green")],
    }
    work = [
        ("y = a + b", 4.8, 7, "green"),
        ("barrier", 7, 8, "pink"),
        ("z = max(y, 0)", 8, 10, "green"),
    ]
    one = [("read a, b; write y", 4.8, 8.6, "green"), ("barrier", 8.6, 10, "pink")]
    ended = [*steps, ("wait for the fence", 4.2, 10.2, "grey"), ("read", 10.2, 12, "blue")]
    two = {"alt": "Host and device over time.", "caption": "-"}
    h200 = [Roof("H200", 67, 4800)]
    products = [("add", 1 / 12, 0.4), ("16 x 16", 4, 19.2), ("64 x 64", 16, 67)]
    return {
        "orders_set": tasks.picture("Five tasks; a, c and b are a down-set.", "-"),
        "orders_lists": draw_timeline(lists, alt="Two schedules.", caption="-", step=1),
        "submission": draw_timeline({"host": ended, "device": work}, arrows, **two),
        "seven_steps": draw_timeline({"host": ended, "device": one}, arrows, **two),
        "banks": draw_banks(),
        "rooflines": draw_rooflines(h200, "-", products, (1 / 32, 256)),
    }


def files() -> dict[Path, str]:
    """Return the text of each file that is made here."""
    course = Course(LABS)
    readme, instructors = LABS / "README.md", LABS / "INSTRUCTORS.md"
    return {
        readme: with_block(readme.read_text("utf-8"), "paths", paths_block(course)),
        instructors: with_block(instructors.read_text("utf-8"), "syllabi", syllabus_block(course)),
        LABS / "paths.svg": svg(course_map(course)),
        **{LABS / "inserts" / f"{n}.svg": svg(drawn) for n, drawn in insert_pictures().items()},
    }


if __name__ == "__main__":
    for file, text in files().items():
        file.write_text(text, encoding="utf-8", newline="\n")
