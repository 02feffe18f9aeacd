"""Short chat templates with the constructs that families of models use to write control tokens."""

from __future__ import annotations

__all__ = ["FAMILIES"]

FAMILIES = {
    "chatml": """\
{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}\
{% if m.name %}{{ m.name }}{% endif %}{% endfor %}{{ extra }}<|im_start|>assistant\\n""",
    "qwen3": """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- for tool in tools %}{{- '\\n' + (tool | tojson) }}{%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(last=messages|length - 1) %}
{%- for m in messages[::-1] %}
    {%- if m.role == 'user' and not (m.content.startswith('<tool_response>')
                                     and m.content.endswith('</tool_response>')) %}
        {%- set ns.last = messages|length - 1 - loop.index0 %}{%- break %}
    {%- endif %}
{%- endfor %}
{%- for m in messages %}
    {%- set content = m.content if m.content is string else '' %}
    {%- if m.role == 'assistant' %}
        {%- set thought = '' %}
        {%- if m.reasoning_content is string %}
            {%- set thought = m.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1] %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {{- '<|im_start|>' + m.role + '\\n<think>\\n' + thought.strip('\\n') + '\\n</think>\\n' }}
        {{- content }}
        {%- for call in m.tool_calls %}
            {%- if call.function %}{%- set call = call.function %}{%- endif %}
            {{- '<tool_call>\\n{"name": "' ~ call.name ~ '", "arguments": ' }}
            {{- call.arguments if call.arguments is string else call.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
    {%- elif m.role == 'tool' %}
        {{- '<|im_start|>user\\n<tool_response>\\n' + content + '\\n</tool_response>' }}
    {%- else %}{{- '<|im_start|>' + m.role + '\\n' + content }}
    {%- endif %}{{- '<|im_end|>\\n' }}
{%- endfor %}""",
    "llama3": """\
{% for m in messages %}{% set content = '<|start_header_id|>' + m['role'] +
'<|end_header_id|>\\n\\n' + m['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}\
{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}\
{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' if add_generation_prompt }}""",
    "mistral": """\
{%- if messages[0]['role'] == 'system' %}{%- set system = messages[0]['content'] %}
{%- set rest = messages[1:] %}{%- else %}{%- set rest = messages %}{%- endif %}
{{- bos_token }}{{- '[AVAILABLE_TOOLS] [' }}{%- for tool in tools %}{{- tool.function | tojson }}
{%- endfor %}{{- ']' + '[/AVAILABLE_TOOLS]' }}
{%- for m in rest %}
    {%- if m.role == 'user' %}{{- '[INST] ' + system + '\\n\\n' + m['content'] + '[/INST]' }}
    {%- elif m.tool_calls is defined %}{{- '[TOOL_CALLS] [' }}
        {%- for call in m.tool_calls %}{%- set out = call.function | tojson %}
            {{- out[:-1] + ', "id": "' + call.id + '"}' }}
            {{- ', ' if not loop.last else ']' + eos_token }}
        {%- endfor %}
    {%- elif m.role == 'tool' %}{{- '[TOOL_RESULTS] ' + m.content | string + '[/TOOL_RESULTS]' }}
    {%- elif m.role == 'assistant' %}{{- ' ' + m['content'] | trim + eos_token }}
    {%- else %}{{- raise_exception('unknown role') }}{%- endif %}
{%- endfor %}""",
    "gemma": """\
{{ bos_token }}{%- macro quoted(value) -%}
    {%- if value is string -%}{{- '<quote>' + value + '<quote>' -}}
    {%- elif value is mapping -%}{%- for key, item in value | dictsort -%}
        {{- '<quote>' + key + '<quote>' -}}:{{- quoted(item) -}}{%- endfor -%}
    {%- else -%}[{%- for item in value -%}{{- quoted(item) -}}{%- endfor -%}]{%- endif -%}
{%- endmacro -%}
{%- macro without_thought(text) -%}{%- set ns = namespace(out='') -%}
    {%- for part in text.split('<channel>') -%}{%- set ns.out = ns.out + part -%}{%- endfor -%}
    {{- ns.out | trim -}}{%- endmacro -%}
{%- for tool in tools %}{{- '<tool>' -}}{{- quoted(tool.function) | trim -}}{{- '</tool>' -}}
{%- endfor %}
{%- for m in messages %}{%- set role = 'model' if m.role == 'assistant' else m.role -%}
{{ '<start_of_turn>' + role + '\\n' + (m['content'] | trim) + '<end_of_turn>\\n' }}
{%- endfor %}{{- '<start_of_turn>model\\n' -}}""",
    "phi": """\
{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] + '<|end|>' }}\
{% if m.name %}{{ '<|tool|>' + m['name'] + '<|/tool|>' }}{% endif %}{% endfor %}\
<|{{ 'assistant' }}|>""",
    "deepseek": """\
{%- set ns = namespace(first=true, system='', output='') -%}
{%- for m in messages if m.role == 'system' -%}
    {%- set line = m['content'] if ns.first else '\\n' + m['content'] -%}
    {%- set ns.system = ns.system + line -%}
    {%- set ns.first = false -%}
{%- endfor -%}
{{ bos_token }}{{ ns.system }}
{%- for m in messages -%}
    {%- if m.role == 'user' -%}{{ '<｜User｜>' + m['content'] }}{%- endif -%}
    {%- if m.role == 'assistant' -%}
        {%- for call in m['tool_calls'] -%}
            {%- if loop.first -%}{{ '<｜Assistant｜><｜calls_begin｜>' }}{%- endif -%}
            {{ '<｜call_begin｜>' + call['type'] + '<｜sep｜>' + call['function']['name'] + '\\n'
               + call['function']['arguments'] | tojson + '<｜call_end｜>' }}
        {%- endfor -%}
        {%- set content = m['content'] -%}
        {%- if '</think>' in content -%}
            {%- set content = content.split('</think>')[-1] -%}
        {%- endif -%}
        {{ '<｜Assistant｜>' + content + eos_token }}
    {%- endif -%}
    {%- if m.role == 'tool' -%}
        {%- set ns.output = ns.output + '<｜output_begin｜>' + m['content'] + '<｜output_end｜>' -%}
        {{ ns.output }}
    {%- endif -%}
{%- endfor -%}
{{ '<｜Assistant｜><think>\\n' }}""",
    "zephyr": """\
{% for m in messages %}
{% if m['role'] in ('user', 'system') %}
{{ '<|' ~ m['role'] ~ '|>\\n' + m['content'] + eos_token }}
{% elif m['role'] == 'assistant' %}
{{ '<|assistant|>\\n'  + m['content'] + eos_token }}
{% endif %}{% endfor %}""",
    "granite": """\
{%- for document in documents %}
{{- '<|start_of_role|>document ' + document.title ~ '<|end_of_role|>\\n' }}
{%- for key, value in document.items() %}{{- key + ': ' + value }}{%- endfor %}
{{- '<|end_of_text|>\\n' }}{%- endfor %}
{%- set turns = [] %}
{%- for m in messages %}
{%- set turns = turns + ['<|start_of_role|>' + m['role'] + '<|end_of_role|>' + m['content']] %}
{{- turns | join('<|end_of_text|>\\n') }}{{- '<|end_of_text|>\\n' }}{%- endfor %}""",
    "harmony": """\
{%- macro typed(value) -%}
    {%- if value is mapping -%}{{ value.keys() | list | join(' | ') }}{%- else -%}{{ value }}
    {%- endif -%}
{%- endmacro -%}
{%- macro system() -%}{{ 'Tools: ' }}{% for tool in tools %}
{{- 'type ' + tool.function.name + ' = ' + typed(tool.function.parameters) + '<|constrain|>' }}
{%- endfor %}{%- endmacro -%}
{{- '<|start|>system<|message|>' }}{{- system() }}{{- '<|end|>' }}
{%- for m in messages %}
    {%- if m.role == 'assistant' and '<|channel|>final<|message|>' is string %}
        {{- '<|start|>assistant<|channel|>%s<|message|>' % 'final' + m.content + '<|return|>' }}
    {%- else %}
        {{- '<|start|>{}<|message|>{}<|end|>'.format(m.role, m.content) }}
    {%- endif %}
{%- endfor %}
{%- set start = '<|start|>' %}{{- [start, 'assistant'] | join }}""",
    "smollm": """\
{% set block %}<|im_start|>user
{% for m in messages %}{% for part in m.parts %}{{ part['text'] }}{% endfor %}
{{ m.content }}<|im_end|>
{% endfor %}{% endset %}{{ block | trim }}{% for m in messages %}<|im_start|>{{ m.content }}\
{% if loop.last %}{{ '<|im_end|>' * 2 }}{% endif %}{% endfor %}""",
}
