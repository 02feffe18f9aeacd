"""Read what the language model learns: novels, the course's prose, and conversations made of both.

    python data/language_text.py    makes course.txt.xz of the labs as they are now

A tenth of all chapters and sections is held out; some more only judge the training. Standard
library only.
"""

from __future__ import annotations

import lzma
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import checksums

__all__ = ["END", "TURN_BEGINS", "TURN_ENDS", "Texts", "read", "turns"]

NOVELS, COURSE = "novels.txt.xz", "course.txt.xz"
NOVEL_ENDS, SECTION_ENDS = "\f\n", "\f\n"
END, TURN_BEGINS, TURN_ENDS = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
HELD_OUT = 10  # every tenth chapter or section
JUDGING = 31  # of the rest, every so many judge the training
LONGEST_TURN = 400  # characters
# So often and in these forms the model is told each definition: it cannot understand, but repeat.
QUESTIONS = ("What is {article} {word}?", "What is {word}?", "What does {word} mean?")
DEFINITION = re.compile(r"^([^:\n]{2,40}): ([^\n]+)$", re.MULTILINE)
_CHAPTER = re.compile(r"^(?:CHAPTER|Chapter) +[IVXL0-9]+\.?$", re.MULTILINE)
_MARKS = re.compile(
    r"^(?:VOLUME|Volume) [IVX]+\.?$|^(?:THE END|FINIS|Finis)\.?$|"
    r"^A NOTE ON THE TEXT.*",
    re.MULTILINE | re.DOTALL,
)
_SPEECH = re.compile(r'"([^"]+)(?:"|$)')


@dataclass(frozen=True)
class Texts:
    """Texts by their purpose; conversations are lists of turns, taken from `training` alone."""

    training: tuple[str, ...]
    judging: tuple[str, ...]
    held_out: tuple[str, ...]
    conversations: tuple[tuple[str, ...], ...]


def read() -> Texts:
    """Return the chapters of the novels and the sections of the course."""
    sides: tuple[list[str], list[str], list[str]] = ([], [], [])
    for texts in (_chapters(), _sections()):
        for index, text in enumerate(texts):
            rest = index - index // HELD_OUT
            side = 2 if index % HELD_OUT == 4 else 1 if rest % JUDGING == 7 else 0
            sides[side].append(text)
    spoken = (turns for text in sides[0] for turns in (*_dialogues(text), *_questions(text)))
    return Texts(*map(tuple, sides), tuple(spoken))


def turns(parts: Sequence[str]) -> str:
    """Return a conversation as the model reads it: user and assistant take turns."""
    roles = ("user", "assistant")
    return "".join(
        f"{TURN_BEGINS}{roles[index % 2]}\n{part}{TURN_ENDS}\n" for index, part in enumerate(parts)
    )


def _unpacked(name: str) -> str:
    return lzma.decompress((checksums.DATA / name).read_bytes()).decode("utf-8")


def _chapters() -> list[str]:
    """Return the chapters of all novels: a line is a paragraph, an empty line stands between."""
    chapters = []
    for novel in _unpacked(NOVELS).split(NOVEL_ENDS):
        for chapter in _CHAPTER.split(_MARKS.sub("", novel))[1:]:
            parts = (" ".join(part.split()) for part in re.split(r"\n\s*\n", chapter))
            text = "\n\n".join(part for part in parts if part)
            chapters.append(text.replace("_", "").replace("--", " -- ").replace("  ", " "))
    return chapters


def _sections() -> list[str]:
    return _unpacked(COURSE).split(SECTION_ENDS)


def _dialogues(chapter: str) -> Iterable[tuple[str, ...]]:
    """Yield what is said in turn: paragraphs in a row that begin with a quotation mark."""
    said: list[str] = []
    for paragraph in (*chapter.split("\n\n"), ""):
        words = " ".join(_SPEECH.findall(paragraph)) if paragraph.startswith('"') else ""
        if words and len(words) <= LONGEST_TURN:
            said.append(words[0].upper() + words[1:])
            continue
        if len(said) > 1:
            yield tuple(said[: len(said) // 2 * 2])
        said = []


def _questions(section: str) -> Iterable[tuple[str, ...]]:
    """Yield questions and an answer for each definition of a glossary, in several forms."""
    for words, meaning in DEFINITION.findall(section):
        word, answer = words.split(",")[0], f"{meaning[0].upper()}{meaning[1:].rstrip('.')}."
        article = "an" if word[0] in "aeiou" else "a"
        for form in QUESTIONS:
            yield form.format(word=word, article=article), answer


def course_prose() -> str:
    """Return the text cells of the labs and the glossary, as sections of plain text."""
    root = checksums.DATA.parent
    sections = []
    for path in sorted((root / "labs" / "source").glob("[0-9]*.py")):
        for cell in path.read_text("utf-8").split("\n# %%")[1:]:
            head, _, body = cell.partition("\n")
            if "[markdown]" in head:
                lines = (line.removeprefix("#").strip() for line in body.splitlines())
                sections.append(_plain("\n".join(lines)))
    glossary = (root / "labs" / "GLOSSARY.md").read_text("utf-8")
    rows = re.findall(r"^\| \*\*([^*|]+)\*\*[^|]*\| ([^|]+) \|$", glossary, re.MULTILINE)
    for start in range(0, len(rows), 8):
        chosen = rows[start : start + 8]
        sections.append(_plain("\n".join(f"{word}: {meaning}" for word, meaning in chosen)))
    return SECTION_ENDS.join(section for section in sections if len(section) > 40)


def _plain(markdown: str) -> str:
    """Return a text without tables, headings' marks, emphasis and the targets of links."""
    kept = (line for line in markdown.splitlines() if not line.startswith(("|", "<", "!", "```")))
    text = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", "\n".join(kept))
    text = re.sub(r"^(?:#+|\*|\d+\.) ", "", text.replace("**", "").replace("`", ""), flags=re.M)
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def main() -> None:
    """Write course.txt.xz and its checksum; print sizes."""
    text = course_prose().encode()
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME}]
    (checksums.DATA / COURSE).write_bytes(lzma.compress(text, filters=filters))
    checksums.update(COURSE)
    print(f"{COURSE}  {(checksums.DATA / COURSE).stat().st_size} bytes, {len(text)} of text")


if __name__ == "__main__":
    main()
