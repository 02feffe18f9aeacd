"""Language model on a scripted decoder: ends of answers, the cache between turns, bad input."""

from __future__ import annotations

import pytest

import vklab
from support.language.scripted_decoder import scripted
from support.language.vocabularies import byte_bpe, sentencepiece
from vklab.apps import llm
from vklab.errors import ModelError

END = "<|im_end|>"


@pytest.fixture
def model_of():
    """Return a function that makes scripted models, which end with the test."""
    made = []

    def make(answers, **how):
        made.append(scripted(answers, **how))
        return made[-1]

    yield make
    for model in made:
        model.close()
        assert model.decoder.is_closed


@pytest.mark.parametrize(("answer", "how", "text", "reason"), [
    (f"hello world{END}hello", {}, "hello world", "end"),
    ("hello world", {"max_tokens": 1}, "hello", "length"),
    ("hello world!", {"stop": " wor"}, "hello", "stop"),
    ("hello world!", {"stop": ["ld!", "o w"]}, "hell", "stop"),
    ("a" * 100, {}, "a" * 62, "context"),
    ("a" * 100, {"max_tokens": 1000}, "a" * 62, "context"),
    ("a" * 100, {"max_tokens": 62}, "a" * 62, "length"),
    (f"{END}", {}, "", "end"),
    ("ab\n", {"stop": "\n\n"}, "ab\n", "end"),
])  # fmt: skip
def test_an_answer_says_why_it_ended(model_of, answer, how, text, reason):
    model = model_of([answer])
    found = model.generate("hi", **how)
    assert found.read() == text and "".join(found) == ""
    statistics = found.statistics
    assert statistics.reason == reason and reason in llm.answer.REASONS
    assert statistics.prompt_tokens == 2 and statistics.kept_tokens == 0
    assert statistics.answer_tokens == len(found.tokens)
    assert statistics.facts()["reason"] == reason
    assert model.cached == (*model.tokens("hi"), *found.tokens)[: model.decoder.lengths[0]]


def test_pieces_come_one_by_one_and_characters_whole(model_of):
    model = model_of([f"hello é{END}"])
    assert list(model.generate("hi")) == ["hello", " ", "é"]


def test_half_a_character_at_the_end_is_replaced(model_of):
    model = model_of([[3 + 0xE6, 1]])
    assert model.generate("hi").read() == "\ufffd"


def test_times_are_counted(model_of):
    model = model_of([f"hello world{END}"])
    answer = model.generate("hi")
    assert answer.statistics.reason == "cancelled" and answer.statistics.answer_tokens == 0
    answer.read()
    found = answer.statistics
    assert 0 < found.prompt_s <= found.first_token_s < 1 and found.decode_s > 0
    assert found.prompt_per_s == 2 / found.prompt_s
    assert found.decode_per_s == 1 / found.decode_s
    assert "prompt 2 tokens at" in str(found) and "2 tokens at" in str(found)


def test_a_turn_keeps_the_common_prefix_in_the_cache(model_of):
    model = model_of([f"hello{END}", f" world{END}", f"b{END}"], context=128)
    chat = model.chat(system="a")
    assert chat.ask("hello").read() == "hello"
    first = list(model.cached)
    answer = chat.ask(" world")
    assert answer.read() == " world"
    prompts = model.decoder.prompts
    whole = model.template.encode(chat.messages[:-1])
    assert prompts[1] == whole[len(first) :]
    assert answer.statistics.kept_tokens == len(first) == len(whole) - len(prompts[1])
    assert [message["role"] for message in chat.messages] == [
        "system",
        "user",
        "assistant",
        "user",
        "assistant",
    ]
    chat.clear()
    assert chat.messages == [{"role": "system", "content": "a"}]
    answer = chat.ask("x")
    kept = answer.statistics.kept_tokens
    whole = model.template.encode(chat.messages)
    assert whole[:kept] == first[:kept] and whole[kept] != first[kept] and kept > 10
    assert prompts[2] == whole[kept:]


def test_the_same_prompt_is_worked_on_from_its_last_token(model_of):
    model = model_of([f"a{END}"] * 2)
    for kept in (0, 1):
        answer = model.generate("hi")
        assert answer.read() == "a" and answer.statistics.kept_tokens == kept


def test_an_answer_may_be_closed_in_the_middle(model_of):
    model = model_of(["hello world hello", f"b{END}"])
    chat = model.chat()
    answer = chat.ask("a")
    assert next(answer) == "hello"
    answer.close()
    answer.close()
    assert answer.statistics.reason == "cancelled" and list(answer) == []
    assert chat.messages[-1] == {"role": "assistant", "content": "hello"}
    assert len(model.cached) == model.decoder.lengths[0]
    assert chat.ask("b").read() == "b" and len(chat.messages) == 4


def test_another_question_ends_the_answer_before(model_of):
    model = model_of(["hello world", "hello world", f"b{END}"], context=128)
    chat = model.chat()
    first = chat.ask("a")
    second = chat.ask("a")
    assert next(second) == "hello" and list(first) == []
    assert chat.messages[1] == {"role": "assistant", "content": ""}
    chat.ask("c").read()
    assert chat.messages[3] == {"role": "assistant", "content": "hello"}


def test_an_interrupt_in_the_middle_leaves_the_model_usable(model_of):
    model = model_of([[3, KeyboardInterrupt], f"b{END}", f"c{END}"])
    chat = model.chat()
    answer = chat.ask("a")
    with pytest.raises(KeyboardInterrupt):
        answer.read()
    assert answer.statistics.reason == "cancelled" and len(chat.messages) == 2
    model.decoder.fails_after = 2
    with pytest.raises(KeyboardInterrupt):
        chat.ask("b")
    assert len(chat.messages) == 2
    model.decoder.fails_after = None
    answer = chat.ask("b")
    assert answer.read() == "b"
    assert list(model.cached) == model.template.encode(chat.messages[:-1]) + answer.tokens


def test_a_chat_beyond_the_context_is_refused_and_goes_on(model_of):
    model = model_of(["a" * 100, f"b{END}"], context=40)
    chat = model.chat()
    answer = chat.ask("hello")
    answer.read()
    assert answer.statistics.reason == "context"
    with pytest.raises(ModelError, match=r"the prompt has \d+ tokens; a context of 40"):
        chat.ask("more")
    assert len(chat.messages) == 2
    chat.clear()
    assert chat.ask("x").read() == "b"


@pytest.mark.parametrize(("prompt", "how", "words"), [
    ("", {}, "the prompt is empty"),
    ([], {}, "the prompt is empty"),
    ("a\ud800b", {}, "no valid Unicode at character 1"),
    ("a" * 64, {}, "64 tokens; a context of 64 has no room"),
    ("a", {"max_tokens": 0}, "ask for at least 1"),
    ("a", {"stop": [""]}, "stop strings"),
])  # fmt: skip
def test_bad_prompts_are_refused_before_the_device_works(model_of, prompt, how, words):
    model = model_of([f"a{END}"])
    with pytest.raises(ModelError, match=words):
        model.generate(prompt, **how)
    assert not model.decoder.prompts
    assert model.generate("a").read() == "a"


def test_an_empty_prompt_begins_a_text_where_the_model_has_a_token_for_it(model_of):
    model = model_of([f"a{END}"], metadata=byte_bpe(add_bos_token=True, add_eos_token=True))
    assert model.generate("").read() == "a" and model.decoder.prompts == [[0]]


def test_sentencepiece_begins_an_answer_without_its_space(model_of):
    tokens = [3 + 256 + 4, 3 + 256 + 4, 2]  # "▁ab" twice
    model = model_of([tokens] * 2, metadata=sentencepiece(), text="{{ messages[0].content }}")
    assert model.chat().ask("c").read() == "ab ab"
    assert model.generate("c").read() == " ab ab"


def test_chatml_ends_an_answer_where_it_has_no_tokens(model_of):
    tokens = ("<s>", "</s>", *byte_bpe()["tokenizer.ggml.tokens"][2:])
    metadata = {**byte_bpe(), "tokenizer.ggml.tokens": tokens}
    model = model_of(["hello<|im_end|>\n<|im_start|>user"], metadata=metadata, context=256)
    answer = model.chat().ask("a")
    assert answer.read() == "hello" and answer.statistics.reason == "stop"


def test_notebooks_see_tokens_cache_and_messages(model_of):
    model = model_of([f"<b>hello{END}"])
    boxes = model.tokens("hello <w\n")
    assert boxes.texts == ["hello", " ", "<", "w", "\n"] and repr(boxes).startswith("5 tokens: ")
    assert "&lt;" in boxes._repr_html_() and str(boxes[0]) in boxes._repr_html_()
    assert model.tokens("é").texts == [r"\xc3", r"\xa9"]
    chat = model.chat(system="be brief")
    chat.ask("hi").read()
    page = chat._repr_html_()
    assert "&lt;b&gt;hello" in page and "be brief" in page and "assistant: <b>hello" in repr(chat)
    used = len(model.cached)
    assert f"{used:,} of 64 positions" in page and f"{used:,} of 64" in model._repr_html_()
    assert "LanguageModel" in repr(model)


def test_the_doors_are_lazy_and_named():
    assert vklab.llm.load is llm.load
    assert {"load", "LanguageModel", "SamplingOptions"} == {*llm.__all__}
    with pytest.raises(AttributeError, match="nix"):
        _ = llm.nix
