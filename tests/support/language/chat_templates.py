"""Chat templates in the manner of families of models, and the texts that transformers makes.

`python tests/support/language/chat_templates.py [FOLDER]` compares with transformers, where that is
installed: these, or the *.jinja files of a folder, as those in llama.cpp's models/templates.
"""

from __future__ import annotations

import sys
from pathlib import Path

TEMPLATES = {
    "llama2": """\
{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}\
{% set system = messages[0]['content'] %}{% else %}{% set rest = messages %}\
{% set system = false %}{% endif %}{% for message in rest %}\
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}\
{{ raise_exception('Roles must alternate user/assistant/user/assistant/...') }}{% endif %}\
{% if loop.index0 == 0 and system != false %}\
{% set content = '<<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' + message['content'] %}\
{% else %}{% set content = message['content'] %}{% endif %}\
{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}\
{% elif message['role'] == 'assistant' %}{{ ' ' + content.strip() + ' ' + eos_token }}\
{% endif %}{% endfor %}""",
    "llama3": """\
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{{- bos_token }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' -}}
    {{ message.content | trim }}{{ '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
""",
    "qwen2": """\
{% for message in messages %}\
{% if loop.first and messages[0]['role'] != 'system' %}\
{{ '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}{% endif %}\
{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}\
{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}""",
    "qwen3": """\
{%- set ns = namespace(last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- if message.role == 'user' and not message.content.startswith('<tool_response>') %}
        {%- set ns.last = messages|length - 1 - loop.index0 %}
        {%- break %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content %}
    {%- if message.role == 'assistant' and '</think>' in content and loop.index0 < ns.last %}
        {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
    {%- endif %}
    {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}""",
    "zephyr": """\
{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>\\n'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}""",
    "json": "{{ messages | tojson }}{% generation %}|{{ tools }}{% endgeneration %}",
}
CHAT = [
    {"role": "system", "content": "Be <b>brief</b>."},
    {"role": "user", "content": 'Hi, "é" 🦙'},
    {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHello."},
    {"role": "user", "content": " Again?\n"},
]
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
EXPECTED = {
    "llama2": (
        '<s>[INST] <<SYS>>\nBe <b>brief</b>.\n<</SYS>>\n\nHi, "é" 🦙 [/INST] <think>\nhm\n'
        "</think>\n\nHello. </s><s>[INST] Again? [/INST]"
    ),
    "llama3": (
        "<s><|start_header_id|>system<|end_header_id|>\n\nBe "
        '<b>brief</b>.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHi, "é" '
        "🦙<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n<think>\nhm\n"
        "</think>\n\nHello.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n"
        "Again?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
    ),
    "qwen2": (
        '<|im_start|>system\nBe <b>brief</b>.<|im_end|>\n<|im_start|>user\nHi, "é" '
        "🦙<|im_end|>\n<|im_start|>assistant\n<think>\nhm\n</think>\n\nHello.<|im_end|>\n"
        "<|im_start|>user\n Again?\n<|im_end|>\n<|im_start|>assistant\n"
    ),
    "qwen3": (
        '<|im_start|>system\nBe <b>brief</b>.<|im_end|>\n<|im_start|>user\nHi, "é" '
        "🦙<|im_end|>\n<|im_start|>assistant\nHello.<|im_end|>\n<|im_start|>user\n Again?\n"
        "<|im_end|>\n<|im_start|>assistant\n"
    ),
    "zephyr": (
        '<|system|>\nBe <b>brief</b>.</s>\n<|user|>\nHi, "é" 🦙</s>\n<|assistant|>\n'
        "<think>\nhm\n</think>\n\nHello.</s>\n<|user|>\n Again?\n</s>\n<|assistant|>\n"
    ),
    "json": (
        '[{"role": "system", "content": "Be <b>brief</b>."}, '
        '{"role": "user", "content": '
        '"Hi, \\"é\\" 🦙"}, {"role": "assistant", "content": '
        '"<think>\\nhm\\n</think>\\n\\nHello."}, {"role": "user", "content": " '
        'Again?\\n"}]|None'
    ),
}


def rendered(text: str) -> str:
    """Return what transformers makes of a template."""
    from transformers.utils.chat_template_utils import render_jinja_template

    how = {"add_generation_prompt": True, **TOKENS}
    found, _ = render_jinja_template([CHAT], chat_template=text, **how)
    return found[0]


def main(folder: str = "") -> None:
    """Print which texts differ: of the templates here, or of a folder's files against ours."""
    from vklab.apps.llm.templates.template_process import TemplateProcess

    texts = TEMPLATES
    if folder:
        texts = {path.name: path.read_text("utf-8") for path in Path(folder).glob("*.jinja")}
    process, count = TemplateProcess(), 0
    values = {"messages": CHAT, "add_generation_prompt": True, "tools": None, "documents": None}
    for name, text in texts.items():
        try:
            wanted = rendered(text)
        except Exception as error:
            print(f"{name}: transformers fails: {error!r:.80}")
            continue
        found = process.render(text, {**values, **TOKENS}).text
        if not wanted == found == EXPECTED.get(name, wanted):
            print(f"{name} differs: {wanted!r:.80}")
        count += 1
    print(f"{count} of {len(texts)} compared")


if __name__ == "__main__":
    main(*sys.argv[1:])
