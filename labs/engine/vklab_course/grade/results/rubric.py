"""Marks by hand: a CSV with the answers to fill in, read back into the records."""

from __future__ import annotations

from pathlib import Path

from vklab_course.grade.results.csvs import read_csv, write_csv
from vklab_course.grade.results.folder import Results
from vklab_course.grade.results.schema import ExerciseResult, GradeError, SubmissionResult

__all__ = ["HEADER", "apply_rubric", "rubric_csv"]

CELL = 30_000
HEADER = ["record", "student", "exercise", "of", "points", "comment", "answer"]


def rubric_csv(results: Results) -> str:
    """Return a line for each answer that needs a mark by hand, or has one."""
    rows: list[list[str | float]] = [[*HEADER]]
    for key, record in results.all().items():
        answers = results.answers(key)
        for exercise, result in record.exercises.items():
            if result.status != "needs_hand_marking" and result.marked_by != "hand":
                continue
            marked = result.marked_by == "hand"
            answer = _shown(answers.get(exercise, ""), key)
            rows.append(
                [
                    key,
                    record.submission.name or record.submission.student,
                    exercise,
                    result.of,
                    result.points if marked else "",
                    "\n".join(result.messages),
                    answer,
                ]
            )
    return write_csv(rows)


def _shown(answer: str, key: str) -> str:
    """Return an answer as a cell of a spreadsheet, which holds 32,767 characters at most."""
    rest = f"\n... (all {len(answer):,} characters are in work/{key}.ipynb)"
    return answer if len(answer) <= CELL else answer[:CELL] + rest


def apply_rubric(results: Results, path: Path) -> int:
    """Write the points and comments of a filled CSV into the records; return how many.

    Nothing is written if one line is wrong. Raises GradeError with the line.
    """
    try:
        rows = read_csv(path.read_text("utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise GradeError(f"{path} cannot be read as UTF-8 text: {error}") from error
    if not rows or rows[0][:6] != HEADER[:6]:
        raise GradeError(f"{path}: the first line must be {','.join(HEADER)}")
    with results.locked():
        records = results.all()
        changed: dict[str, SubmissionResult] = {}
        count = 0
        for number, row in enumerate(rows[1:], 2):
            if len(row) < 6 or not row[4].strip():
                continue
            key, exercise = row[0], row[2]
            record = changed.get(key) or records.get(key)
            if record is None or exercise not in record.exercises:
                raise GradeError(
                    f"{path}, line {number}: no record {key!r} with exercise {exercise!r}"
                )
            result = _marked(record.exercises[exercise], row, f"{path}, line {number}")
            changed[key] = record.model_copy(
                update={"exercises": {**record.exercises, exercise: result}}
            )
            count += 1
        for key, record in changed.items():
            results.write(key, record)
    return count


def _marked(before: ExerciseResult, row: list[str], where: str) -> ExerciseResult:
    if before.status != "needs_hand_marking" and before.marked_by != "hand":
        raise GradeError(f"{where}: {row[2]} is marked by its check, not by hand")
    try:
        points = float(row[4].replace(",", "."))
    except ValueError:
        raise GradeError(f"{where}: {row[4]!r} is no number of points") from None
    if not 0 <= points <= before.of:
        raise GradeError(f"{where}: {points:g} points; the exercise has 0 to {before.of:g}")
    status = "passed" if points == before.of else "partial" if points else "failed"
    messages = (row[5],) if row[5].strip() else ()
    return ExerciseResult.model_validate(
        {
            "status": status,
            "points": points,
            "of": before.of,
            "messages": messages,
            "marked_by": "hand",
        }
    )
