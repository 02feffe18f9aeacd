"""`vklab chat` and `vklab generate` on a scripted model: pipes, terminals, interrupts, JSON."""

from __future__ import annotations

import io
import json
import sys

import pytest
from rich.console import Console

from support.language.scripted_decoder import scripted
from vklab.apps import cli
from vklab.apps.cli import chat as chats
from vklab.apps.cli import console, llm_options

END = "<|im_end|>"


@pytest.fixture
def command(monkeypatch, capsys, tmp_path):
    """Return a function that runs a command on scripted answers: (code, stdout, stderr)."""

    def run(line, answers, stdin="", context=256):
        room = context

        def load(path, *, device, context, cache, progress, report, loaded, devices, layers):
            model = scripted(answers, room)
            report(model.decoder.sizes)
            progress(1, 1, "kernel")
            loaded(1, 1)
            run.asked = (device, context, cache)
            run.placed = (devices, layers)
            run.model = model
            return model

        data = stdin if isinstance(stdin, bytes) else stdin.encode()
        monkeypatch.setattr(llm_options.language_model, "load", load)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), "utf-8"))
        code = cli.main([line[0], str(tmp_path / "m.gguf"), *line[1:]])
        said = capsys.readouterr()
        assert run.model.decoder.is_closed
        return code, said.out, said.err

    return run


def test_a_chat_through_pipes_writes_answers_on_stdout_and_facts_on_stderr(command):
    code, out, err = command(
        ["chat", "--system", "a"], [f"hello world{END}", f"b\n{END}"], "hi\n\n  again \n"
    )
    assert code == 0 and out == "hello world\nb\n"
    assert "weights 1000 B, cache of 256 positions 2.0 KiB, scratch 30 B" in err
    assert "ChatML is used" in err and "> " not in err
    first, second = (line for line in err.splitlines() if line.startswith("[prompt"))
    assert "first token after" in first and "2 tokens at" in first
    assert "in the cache) tokens at" in second


def test_commands_of_a_chat(command):
    lines = "/help\nhi\n/clear\n/what\n/etc/passwd is a file\nhi\n/exit\nhi\n"
    code, out, err = command(["chat"], [f"a{END}", f"b{END}", f"c{END}"], lines)
    assert code == 0 and out == "a\nb\nc\n"
    assert "the chat is forgotten" in err and "unknown command /what; /clear" in err
    assert chats.HELP in err.splitlines()


def test_options_reach_the_model(command):
    line = [
        "chat",
        "--temperature",
        "0.5",
        "--top-k",
        "3",
        "--top-p",
        "0.7",
        "--min-p",
        "0.1",
        "--repeat-penalty",
        "1.2",
        "--seed",
        "9",
        "--device",
        "cpu",
        "--context",
        "99",
        "--cache",
        "F32",
        "-n",
        "2",
        "--stop",
        "x",
        "--stop",
        "rl",
    ]
    code, out, err = command(line, ["hello world"] * 2, "hi\nhi\n")
    assert code == 0 and out == "hello wo\n" * 2 and "a stop string appeared" in err
    assert command.asked == ("cpu", 99, "F32") and command.placed == (None, None)
    options, limit = command.model.decoder.calls[0]
    assert (options.temperature, options.top_k, options.top_p, options.min_p) == (0.5, 3, 0.7, 0.1)
    assert (options.repeat_penalty, options.seed, limit) == (1.2, 9, 2)
    for line, placed in (
        (["--devices", "all"], ("all", None)),
        (["--devices", "0, lava", "--layers", "3"], (["0", "lava"], [3])),
        (["--layers", "3,4"], (None, [3, 4])),
    ):
        assert command(["generate", "-p", "hi", *line], [f"a{END}"])[0] == 0
        assert command.placed == placed


def test_an_interrupt_stops_the_answer_not_the_chat(command):
    answers = [[3, KeyboardInterrupt], f"b{END}"]
    code, out, err = command(["chat"], answers, "hi\nagain\n")
    assert code == 0 and out.splitlines()[-1] == "b" and "it was cancelled" in err


def test_an_interrupt_before_the_first_token_forgets_the_message(command, monkeypatch):
    def load(*given, **more):
        model = scripted([f"b{END}"], 256)
        model.decoder.fails_after = 1
        command.model = model
        return model

    monkeypatch.setattr(llm_options.language_model, "load", load)
    monkeypatch.setattr(sys, "stdin", io.StringIO("hi\nagain\n"))
    assert cli.main(["chat", "m.gguf"]) == 0
    assert command.model.decoder.lengths[0] > 0


def test_a_hostile_template_is_one_message(command, monkeypatch, capsys):
    text = (
        "{% set n = namespace(x='aa') %}{% for i in range(60) %}"
        "{% set n.x = n.x ~ n.x %}{% endfor %}"
    )
    model = scripted([f"a{END}"], text=text)
    monkeypatch.setattr(llm_options.language_model, "load", lambda *given, **more: model)
    monkeypatch.setattr(sys, "stdin", io.StringIO("hi\n"))
    assert cli.main(["chat", "m.gguf"]) == 2
    assert "the chat template needs too much memory" in capsys.readouterr().err


def test_a_full_context_ends_the_answer_and_the_next_question_says_so(command):
    code, out, err = command(["chat"], ["a" * 100], "hi\nmore\n", context=40)
    assert code == 2 and "the context is full" in err and "a context of 40 has no room" in err


def test_bytes_that_are_no_utf8_are_refused(command):
    for line in (["chat"], ["generate", "-p", "-"]):
        code, out, err = command(line, [f"a{END}"], b"ab\xff\n")
        assert code == 2 and "no valid Unicode" in err and not out


def test_json_of_a_chat_is_one_object(command):
    code, out, err = command(["chat", "--json"], [f"hello{END}", f"b{END}"], "hi\nmore\n")
    facts = json.loads(out)
    assert code == 0 and [message["content"] for message in facts["messages"]] == [
        "hi",
        "hello",
        "more",
        "b",
    ]
    assert [answer["reason"] for answer in facts["answers"]] == ["end", "end"]
    assert facts["weights_bytes"] == 1000 and facts["context"] == 256 and not err


def test_a_terminal_gets_a_prompt_and_keeps_the_chat_after_errors(command, monkeypatch, capsys):
    typed = iter(["hi", KeyboardInterrupt, "more", "/clear", "hi", EOFError])

    def say(mark):
        assert mark == chats.MARK
        given = next(typed)
        if isinstance(given, str):
            return given
        raise given

    model = scripted(["a" * 100, f"b{END}"], 40)
    prepared = []
    model.decoder.prepare = lambda is_wanted: prepared.append(is_wanted)
    monkeypatch.setattr(llm_options.language_model, "load", lambda *given, **more: model)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", say)
    assert cli.main(["chat", "m.gguf"]) == 0
    said = capsys.readouterr()
    assert said.out.endswith("\nb\n") and chats.HELP in said.err
    assert "/exit or Ctrl-D leaves the chat" in said.err
    assert "has no room for it and an answer; /clear forgets the chat" in said.err
    assert [is_wanted() for is_wanted in prepared] == [False]  # once, and no longer


def test_generate_continues_a_text(command):
    code, out, err = command(["generate", "-p", "hi", "-n", "3"], ["hello world!!"])
    assert code == 0 and out == "hello world!\n"
    assert "weights 1000 B" in err and "the most tokens" in err
    code, out, _ = command(["generate", "-p", "-", "--json"], [f"hello{END}"], "hi\n")
    facts = json.loads(out)
    assert code == 0 and facts["prompt"] == "hi\n" and facts["text"] == "hello"
    assert facts["statistics"]["reason"] == "end" and len(facts["tokens"]) == 1
    code, out, err = command(["generate", "-p", "hi"], [[3, KeyboardInterrupt]])
    assert code == 130 and "cancelled" in err


@pytest.mark.parametrize(("line", "code", "words"), [
    (["generate", "-p", ""], 2, "the prompt is empty"),
    (["generate", "-p", "a\udcff"], 2, "no valid Unicode"),
    (["generate", "-p", "a" * 300], 2, "a context of 256 has no room"),
    (["generate", "-p", "a", "--top-p", "7"], 2, "top_p"),
    (["generate", "-p", "a", "-n", "0"], 2, "--max-tokens"),
    (["generate", "-p", "a", "--layers", "1.5"], 2, "write a number, or several"),
    (["generate", "-p", "a", "--temperature", "-1"], 2, "--temperature"),
    (["generate", "-p", "a", "--stop", ""], 2, "stop strings"),
    (["generate"], 2, "--prompt"),
])  # fmt: skip
def test_bad_usage_is_one_message(command, line, code, words):
    command.model = scripted([])
    command.model.close()
    found, out, err = command(line, [f"a{END}"])
    assert found == code and words in err and "Traceback" not in err and not out.strip()


def test_a_terminal_is_not_steered_by_a_model(monkeypatch):
    written = io.TextIOWrapper(io.BytesIO(), "ascii")
    monkeypatch.setattr(sys, "stdout", written)
    console.write("a\x1b[2J\té\n")
    monkeypatch.setattr(written, "isatty", lambda: True, raising=False)
    written.reconfigure(encoding="utf-8")
    console.write("a\x1b[2J\té\x9b\x07\n")
    assert written.buffer.getvalue() == b"a\x1b[2J\t?\n" + "a␛[2J\té\ufffd␇\n".encode()


def test_a_terminal_sees_the_bytes_of_a_load(monkeypatch):
    shown = io.StringIO()
    monkeypatch.setattr(console, "_err", Console(file=shown, force_terminal=True, width=70))
    with console.loading("loading m.gguf") as told:
        told["progress"](1, 3, "matmul")
        told["loaded"](1 << 20, 4 << 20)
    assert "loading m.gguf" in shown.getvalue() and "1.0/4.0 MiB" in shown.getvalue()
    monkeypatch.setattr(console, "_err", Console(file=shown))
    before = shown.getvalue()
    with console.loading("loading m.gguf") as told:
        told["loaded"](1, 2)
    assert shown.getvalue() == before, "a file gets no bar"
