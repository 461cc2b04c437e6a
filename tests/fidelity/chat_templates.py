"""Chat templates in the forms that popular models use, written anew from what their documentation says of the form.

``{% generation %}`` stands around what the assistant says; without the tags the text is the same.
"""

# ruff: noqa: E501 - templates have long lines
from __future__ import annotations

import re

G, E = "{% generation %}", "{% endgeneration %}"
ALL = "{% for m in messages %}"
END = "{% endfor %}"
SAID = f"{G}{{{{ m['content'] }}}}"


def unmarked(template: str) -> str:
    """The same without the tag."""
    return re.sub(r"\{%-?\+? *(?:end)?generation *\+?-?%\}", "", template)


def _turns(head: str, tail: str, *, before: str = "", prompt: str = "", between: str = "") -> str:
    """Every message as HEAD content TAIL; HEAD is an expression of ``m``."""
    return (
        f"{before}{ALL}{{{{ {head} }}}}{between}{{% if m.role == 'assistant' %}}{SAID}{tail}{E}"
        f"{{% else %}}{{{{ m['content'] }}}}{tail}{{% endif %}}{END}"
        f"{{% if add_generation_prompt %}}{prompt}{{% endif %}}"
    )


CALLS = (
    "{% for call in m.tool_calls %}{% if not loop.first or m.content %}{{ '\n' }}{% endif %}"
    '{{ \'<tool_call>\n{"name": "\' + call.function.name + \'", "arguments": \' }}'
    "{% if call.function.arguments is string %}{{ call.function.arguments }}{% else %}"
    "{{ call.function.arguments | tojson }}{% endif %}{{ '}\n</tool_call>' }}{% endfor %}"
)
TEMPLATES: dict[str, str] = {
    "chatml": _turns(
        "'<|im_start|>' + m.role + '\n'", "{{ '<|im_end|>\n' }}", prompt="{{ '<|im_start|>assistant\n' }}"
    ),
    "chatml with a system message of its own": (
        "{% if messages[0].role != 'system' %}{{ '<|im_start|>system\nBe good.<|im_end|>\n' }}{% endif %}"
        + _turns("'<|im_start|>' + m.role + '\n'", "<|im_end|>{{ '\n' }}", prompt="{{ '<|im_start|>assistant\n' }}")
    ),
    "llama 2": (
        "{% if messages[0].role == 'system' %}{% set rest = messages[1:] %}{% set system = '<<SYS>>\n' + messages[0].content +"
        " '\n<</SYS>>\n\n' %}{% else %}{% set rest = messages %}{% set system = '' %}{% endif %}{% for m in rest %}"
        "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles alternate') }}{% endif %}"
        "{% if m.role == 'user' %}{{ bos_token + '[INST] ' + (system if loop.first else '') + m.content | trim + ' [/INST]' }}"
        "{% elif m.role == 'assistant' %}{% generation %}{{ ' ' + m.content | trim + ' ' + eos_token }}{% endgeneration %}"
        "{% endif %}{% endfor %}"
    ),
    "llama 3": (
        "{% set loop_messages = messages %}{% for m in loop_messages %}{% set head = '<|start_header_id|>' + m.role +"
        " '<|end_header_id|>\n\n' %}{% if loop.index0 == 0 %}{% set head = bos_token + head %}{% endif %}{{ head }}"
        "{% if m.role == 'assistant' %}{% generation %}{{ m.content | trim + '<|eot_id|>' }}{% endgeneration %}{% else %}"
        "{{ m.content | trim + '<|eot_id|>' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
    ),
    "llama 3.1 with tools": (
        "{{- bos_token }}{%- if not date_string is defined %}{%- set date_string = '26 Jul 2024' %}{%- endif %}\n"
        "{{- '<|start_header_id|>system<|end_header_id|>\n\n' }}{%- if tools is not none %}{{- 'Environment: ipython\n' }}"
        "{%- endif %}{{- 'Today Date: ' + date_string + '\n\n' }}\n"
        "{%- if tools is not none %}{%- for t in tools %}{{- t | tojson(indent=4) }}{{- '\n\n' }}{%- endfor %}{%- endif %}"
        "{{- '<|eot_id|>' }}\n"
        "{%- for m in messages %}\n"
        "    {%- if m.role == 'tool' or m.role == 'ipython' %}\n"
        "        {{- '<|start_header_id|>ipython<|end_header_id|>\n\n' }}"
        "{%- if m.content is mapping or m.content is iterable and m.content is not string %}{{- m.content | tojson }}{%- else %}"
        "{{- m.content }}{%- endif %}{{- '<|eot_id|>' }}\n"
        "    {%- elif 'tool_calls' in m and m.tool_calls %}\n"
        "        {%- if m.tool_calls | length != 1 %}{{- raise_exception('one call at a time') }}{%- endif %}\n"
        "        {%- set call = m.tool_calls[0].function %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}\n"
        "        {%- generation %}{{- '{\"name\": \"' + call.name + '\", ' }}{{- '\"parameters\": ' }}"
        "{{- call.arguments | tojson }}{{- '}' }}{{- '<|eot_id|>' }}{%- endgeneration %}\n"
        "    {%- else %}{{- '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' }}"
        "{%- if m.role == 'assistant' %}{%- generation %}{{- m.content | trim + '<|eot_id|>' }}{%- endgeneration %}"
        "{%- else %}{{- m.content | trim + '<|eot_id|>' }}{%- endif %}{%- endif %}\n"
        "{%- endfor %}\n"
        "{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}"
    ),
    "mistral v1": (
        "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ ' [INST] ' + m.content + ' [/INST]' }}"
        "{% elif m.role == 'assistant' %}{% generation %}{{ ' ' + m.content + eos_token }}{% endgeneration %}"
        "{% else %}{{ raise_exception('user and assistant alone') }}{% endif %}{% endfor %}"
    ),
    "mistral v3 with tools": (
        "{{ bos_token }}{% set users = namespace(n=0) %}{% for m in messages %}{% if m.role == 'user' %}"
        "{% set users.n = users.n + 1 %}{% if tools is not none and loop.last %}"
        "{{ '[AVAILABLE_TOOLS] ' }}{{ '[' }}{% for t in tools %}{{ t | tojson }}{% if not loop.last %}{{ ', ' }}{% endif %}"
        "{% endfor %}{{ '][/AVAILABLE_TOOLS]' }}{% endif %}{{ '[INST] ' + m.content + '[/INST]' }}"
        "{% elif m.tool_calls is defined and m.tool_calls is not none and m.tool_calls %}"
        "{% generation %}{{ '[TOOL_CALLS] [' }}{% for c in m.tool_calls %}{{ c.function | tojson }}{% if not loop.last %}, "
        "{% endif %}{% endfor %}{{ ']' + eos_token }}{% endgeneration %}"
        "{% elif m.role == 'assistant' %}{% generation %}{{ ' ' + m.content | trim + eos_token }}{% endgeneration %}"
        "{% elif m.role == 'tool' %}{{ '[TOOL_RESULTS] {\"content\": ' + m.content | string + '}[/TOOL_RESULTS]' }}"
        "{% elif m.role == 'system' %}{{ '[SYSTEM] ' + m.content }}{% endif %}{% endfor %}"
    ),
    "mistral tekken": (
        "{{- bos_token }}{%- for m in messages %}{%- if m.role == 'user' %}{{- '[INST]' + m.content + '[/INST]' }}"
        "{%- elif m.role == 'system' %}{{- '[SYSTEM_PROMPT]' + m.content + '[/SYSTEM_PROMPT]' }}"
        "{%- elif m.role == 'assistant' %}{%- generation -%}{{- m.content + eos_token }}{%- endgeneration -%}{%- endif %}{%- endfor %}"
    ),
    "gemma": (
        "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
        "{% for m in messages %}{% set role = 'model' if m.role == 'assistant' else m.role %}"
        "{{ '<start_of_turn>' + role + '\n' }}{% if role == 'model' %}{% generation %}{{ m.content | trim }}"
        "{{ '<end_of_turn>\n' }}{% endgeneration %}{% else %}{{ m.content | trim + '<end_of_turn>\n' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
    ),
    "gemma 3 with parts": (
        "{{ bos_token }}{%- set first = '' -%}{%- if messages[0].role == 'system' -%}{%- if messages[0].content is string -%}"
        "{%- set first = messages[0].content + '\n\n' -%}{%- else -%}{%- set first = messages[0].content[0].text + '\n\n' -%}"
        "{%- endif -%}{%- set rest = messages[1:] -%}{%- else -%}{%- set rest = messages -%}{%- endif -%}"
        "{%- for m in rest -%}{%- set role = 'model' if m.role == 'assistant' else m.role -%}"
        "{{ '<start_of_turn>' + role + '\n' + (first if loop.first else '') }}"
        "{%- if role == 'model' -%}{%- generation -%}{%- if m.content is string -%}{{ m.content | trim }}{%- else -%}"
        "{%- for p in m.content -%}{{ p.text | trim }}{%- endfor -%}{%- endif -%}{{ '<end_of_turn>\n' }}{%- endgeneration -%}"
        "{%- else -%}{%- if m.content is string -%}{{ m.content | trim }}{%- else -%}{%- for p in m.content -%}"
        "{%- if p.type == 'text' -%}{{ p.text | trim }}{%- endif -%}{%- endfor -%}{%- endif -%}{{ '<end_of_turn>\n' }}{%- endif -%}"
        "{%- endfor -%}{%- if add_generation_prompt -%}{{ '<start_of_turn>model\n' }}{%- endif -%}"
    ),
    "phi 3": _turns("'<|' + m.role + '|>\n'", "{{ '<|end|>\n' }}", prompt="{{ '<|assistant|>\n' }}")
    + "{{ eos_token if not add_generation_prompt }}",
    "phi 4": _turns(
        "'<|im_start|>' + m.role + '<|im_sep|>'", "<|im_end|>", prompt="{{ '<|im_start|>assistant<|im_sep|>' }}"
    ),
    "qwen 2.5 with tools": (
        "{%- if tools %}\n    {{- '<|im_start|>system\n' }}\n    {%- if messages[0]['role'] == 'system' %}\n"
        "        {{- messages[0]['content'] }}\n    {%- else %}\n        {{- 'You are helpful.' }}\n    {%- endif %}\n"
        "    {{- '\n\n# Tools\n<tools>' }}\n    {%- for tool in tools %}\n        {{- '\n' }}\n        {{- tool | tojson }}\n"
        "    {%- endfor %}\n    {{- '\n</tools><|im_end|>\n' }}\n{%- else %}\n    {%- if messages[0]['role'] == 'system' %}\n"
        "        {{- '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }}\n    {%- endif %}\n{%- endif %}\n"
        "{%- for m in messages %}\n    {%- if m.role == 'user' or (m.role == 'system' and not loop.first) %}\n"
        "        {{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' + '\n' }}\n    {%- elif m.role == 'assistant' %}\n"
        "        {{- '<|im_start|>assistant\n' }}{%- generation %}{%- if m.content %}{{- m.content }}{%- endif %}"
        + CALLS
        + "{{- '<|im_end|>' }}{%- endgeneration %}{{- '\n' }}\n    {%- elif m.role == 'tool' %}\n"
        "        {%- if loop.index0 == 0 or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}\n"
        "        {{- '\n<tool_response>\n' }}{{- m.content }}{{- '\n</tool_response>' }}\n"
        "        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\n' }}{%- endif %}\n    {%- endif %}\n"
        "{%- endfor %}\n{%- if add_generation_prompt %}\n    {{- '<|im_start|>assistant\n' }}\n{%- endif %}\n"
    ),
    "qwen 3 with thinking": (
        "{%- set ns = namespace(last=messages | length - 1, search=true) %}{%- for m in messages[::-1] %}"
        "{%- set index = messages | length - 1 - loop.index0 %}{%- if ns.search and m.role == 'user' and m.content is string %}"
        "{%- set ns.search = false %}{%- set ns.last = index %}{%- endif %}{%- endfor %}"
        "{%- for m in messages %}{%- set content = m.content if m.content is string else '' %}"
        "{%- if m.role in ['user', 'system', 'tool'] %}{{- '<|im_start|>' + m.role + '\n' + content + '<|im_end|>\n' }}"
        "{%- elif m.role == 'assistant' %}{%- set thought = '' %}{%- if m.reasoning_content is string %}"
        "{%- set thought = m.reasoning_content %}{%- elif '</think>' in content %}"
        "{%- set thought = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}"
        "{%- set content = content.split('</think>')[-1].lstrip('\n') %}{%- endif %}{{- '<|im_start|>assistant\n' }}"
        "{%- generation %}{%- if loop.index0 > ns.last and (loop.last or thought) %}"
        "{{- '<think>\n' + thought.strip('\n') + '\n</think>\n\n' + content.lstrip('\n') }}{%- else %}{{- content }}{%- endif %}"
        "{{- '<|im_end|>' }}{%- endgeneration %}{{- '\n' }}{%- endif %}{%- endfor %}"
        "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- if enable_thinking is defined and not enable_thinking %}"
        "{{- '<think>\n\n</think>\n\n' }}{%- endif %}{%- endif %}"
    ),
    "deepseek 2": (
        "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{{ bos_token }}"
        "{% for m in messages %}{% if m.role == 'user' %}{{ 'User: ' + m.content + '\n\n' }}{% elif m.role == 'assistant' %}"
        "{{ 'Assistant: ' }}{% generation %}{{ m.content + eos_token }}{% endgeneration %}{% elif m.role == 'system' %}"
        "{{ m.content + '\n\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
    ),
    "deepseek 3": (
        "{% set ns = namespace(system='', first=true) %}{%- for m in messages %}{%- if m.role == 'system' %}"
        "{%- if ns.first %}{% set ns.system = ns.system + m.content %}{% set ns.first = false %}{%- else %}"
        "{% set ns.system = ns.system + '\n\n' + m.content %}{%- endif %}{%- endif %}{%- endfor %}{{ bos_token }}{{ ns.system }}"
        "{%- for m in messages %}{%- if m.role == 'user' %}{{ '<|User|>' + m.content }}{%- endif %}"
        "{%- if m.role == 'assistant' %}{{ '<|Assistant|>' }}{%- set content = m.content or '' %}{% if '</think>' in content %}"
        "{% set content = content.split('</think>')[-1] %}{% endif %}{% generation %}{{ content + eos_token }}{% endgeneration %}"
        "{%- endif %}{%- endfor -%}{% if add_generation_prompt %}{{ '<|Assistant|>' }}{% endif %}"
    ),
    "zephyr": _turns("'<|' + m.role + '|>\n'", "{{ eos_token + '\n' }}", prompt="{{ '<|assistant|>\n' }}"),
    "vicuna": (
        "{% if messages[0].role == 'system' %}{{ messages[0].content + ' ' }}{% else %}{{ 'A chat. ' }}{% endif %}"
        "{% for m in messages %}{% if m.role == 'user' %}{{ 'USER: ' + m.content + ' ' }}{% elif m.role == 'assistant' %}ASSISTANT: "
        "{% generation %}{{ m.content }}{{ eos_token }}{% endgeneration %}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}ASSISTANT:{% endif %}"
    ),
    "alpaca": (
        "{% for m in messages %}{% if m.role == 'system' %}{{ m.content + '\n\n' }}{% elif m.role == 'user' %}"
        "{{ '### Instruction:\n' + m.content + '\n\n' }}{% else %}{{ '### Response:\n' }}{% generation %}{{ m.content }}"
        "{% endgeneration %}{{ '\n\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '### Response:\n' }}{% endif %}"
    ),
    "olmo": (
        "{{ eos_token }}{% for m in messages %}{% if m.role == 'assistant' %}{{ '<|assistant|>\n' }}{% generation %}{{ m.content }}"
        "{{ eos_token }}{% endgeneration %}{% if not loop.last %}{{ '\n' }}{% endif %}{% else %}"
        "{{ '<|' + m.role + '|>\n' + m.content + '\n' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
    ),
    "tulu": (
        "{% for m in messages %}{% if m.role == 'assistant' %}{{ '<|assistant|>\n' }}{% generation %}{{ m.content + eos_token }}"
        "{% if not loop.last %}{{ '\n' }}{% endif %}{% endgeneration %}{% else %}{{ '<|' + m.role + '|>\n' + m.content + '\n' }}"
        "{% endif %}{% if loop.last and add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}{% endfor %}"
    ),
    "smollm 2": (
        "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
        "{{ '<|im_start|>system\nYou are SmolLM.<|im_end|>\n' }}{% endif %}{{ '<|im_start|>' + message['role'] + '\n' }}"
        "{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}"
        "{{ '\n' }}{% else %}{{ message['content'] + '<|im_end|>\n' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    ),
    "smollm 3": (
        "{% set mode = '/no_think' if enable_thinking is defined and not enable_thinking else '/think' %}"
        "{{ '<|im_start|>system\n## Metadata\nReasoning: ' + mode + '\n<|im_end|>\n' }}"
        "{%- for m in messages -%}{%- set content = m.content if m.content is string else '' -%}"
        "{%- if m.role == 'user' -%}{{ '<|im_start|>user\n' + content + '<|im_end|>\n' }}{%- elif m.role == 'assistant' -%}"
        "{{ '<|im_start|>assistant\n' }}{%- generation -%}{%- if mode == '/think' -%}{{ content.lstrip('\n') + '<|im_end|>\n' }}"
        "{%- else -%}{{ '<think>\n\n</think>\n' + content.lstrip('\n') + '<|im_end|>\n' }}{%- endif -%}{%- endgeneration -%}"
        "{%- elif m.role == 'tool' -%}{{ '<|im_start|>user\n' + content + '<|im_end|>\n' }}{%- endif -%}{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}{%- endif -%}"
    ),
    "granite": _turns(
        "'<|start_of_role|>' + m.role + '<|end_of_role|>'",
        "{{ eos_token + '\n' }}",
        before="{% if tools %}{{ '<|start_of_role|>tools<|end_of_role|>' + tools | tojson(indent=4) + eos_token + '\n' }}{% endif %}"
        "{% if documents %}{{ '<|start_of_role|>documents<|end_of_role|>' }}{% for d in documents %}"
        "{{ 'Document ' + loop.index | string + '\n' + d.text }}{% endfor %}{{ eos_token + '\n' }}{% endif %}",
        prompt="{{ '<|start_of_role|>assistant<|end_of_role|>' }}",
    ),
    "command r": (
        "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}"
        "{{ '<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>' + m.content + '<|END_OF_TURN_TOKEN|>' }}{% elif m.role == 'user' %}"
        "{{ '<|START_OF_TURN_TOKEN|><|USER_TOKEN|>' + m.content.strip() + '<|END_OF_TURN_TOKEN|>' }}{% elif m.role == 'assistant' %}"
        "{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}{% generation %}{{ m.content.strip() + '<|END_OF_TURN_TOKEN|>' }}"
        "{% endgeneration %}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}{% endif %}"
    ),
    "yi": (
        "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}"
        + _turns("'<|im_start|>' + m.role + '\n'", "{{ '<|im_end|>\n' }}", prompt="{{ '<|im_start|>assistant\n' }}")
    ),
    "falcon": (
        "{% for m in messages %}{% if not loop.first %}{{ '\n' }}{% endif %}{% if m.role == 'system' %}{{ 'System: ' + m.content }}"
        "{% elif m.role == 'user' %}{{ 'User: ' + m.content.replace('\r\n', '\n').replace('\n\n', '\n') }}"
        "{% elif m.role == 'assistant' %}{{ 'Falcon:' }}{% generation %}{{ ' ' + m.content }}{% endgeneration %}{% endif %}"
        "{% endfor %}{% if add_generation_prompt %}{{ '\nFalcon:' }}{% endif %}"
    ),
    "stablelm": (
        "{% for m in messages %}{% if m.role == 'assistant' %}{{ '<|assistant|>\n' }}{% generation %}{{ m.content | trim + eos_token }}"
        "{% endgeneration %}{{ '\n' }}{% else %}{{ '<|' + m.role + '|>\n' + m.content | trim + eos_token + '\n' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
    ),
    "openchat": (
        "{{ bos_token }}{% for m in messages %}{{ 'GPT4 Correct ' + m.role.title() + ': ' }}{% if m.role == 'assistant' %}"
        "{% generation %}{{ m.content + '<|end_of_turn|>' }}{% endgeneration %}{% else %}{{ m.content + '<|end_of_turn|>' }}"
        "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ 'GPT4 Correct Assistant:' }}{% endif %}"
    ),
    "internlm 2": _turns(
        "'<|im_start|>' + m.role + '\n'",
        "{{ '<|im_end|>\n' }}",
        before="{{ bos_token }}",
        prompt="{{ '<|im_start|>assistant\n' }}",
    ),
    "harmony": (
        "{%- macro channel(m, name, text) -%}{{ '<|start|>assistant<|channel|>' + name + '<|message|>' }}{%- endmacro -%}"
        "{{ '<|start|>system<|message|>Reasoning: ' + (reasoning_effort or 'medium') + '<|end|>' }}"
        "{%- if tools -%}{{ '<|start|>developer<|message|>namespace functions {' }}{%- for t in tools -%}"
        "{{ 'type ' + t.function.name + ' = (_: ' + t.function.parameters | tojson + ') => any;' }}{%- endfor -%}{{ '}<|end|>' }}{%- endif -%}"
        "{%- for m in messages -%}{%- if m.role == 'assistant' -%}{%- if m.reasoning_content and loop.last -%}"
        "{{ channel(m, 'analysis') }}{%- generation -%}{{ m.reasoning_content + '<|end|>' }}{%- endgeneration -%}{%- endif -%}"
        "{%- if m.tool_calls -%}{%- set c = m.tool_calls[0].function -%}{{ '<|start|>assistant to=functions.' + c.name }}"
        "{{ '<|channel|>commentary json<|message|>' }}{%- generation -%}{{ c.arguments | tojson + '<|call|>' }}{%- endgeneration -%}"
        "{%- else -%}{{ channel(m, 'final') }}{%- generation -%}{{ m.content + ('<|return|>' if loop.last else '<|end|>') }}"
        "{%- endgeneration -%}{%- endif -%}{%- elif m.role == 'tool' -%}"
        "{{ '<|start|>functions.' + (m.name or 'f') + ' to=assistant<|channel|>commentary<|message|>' + m.content | tojson + '<|end|>' }}"
        "{%- else -%}{{ '<|start|>' + m.role + '<|message|>' + m.content + '<|end|>' }}{%- endif -%}{%- endfor -%}"
        "{%- if add_generation_prompt -%}<|start|>assistant{%- endif -%}"
    ),
    "baichuan": (
        "{% for m in messages %}{% if m.role == 'user' %}{{ '<reserved_106>' + m.content }}{% elif m.role == 'assistant' %}"
        "{{ '<reserved_107>' }}{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<reserved_107>{% endif %}"
    ),
    "chatglm 3": (
        "[gMASK]sop{% for m in messages %}{% if loop.first %}{% endif %}{{ '<|' + m.role + '|>\n ' }}{% if m.role == 'assistant' %}"
        "{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    ),
    "glm 4": (
        "[gMASK]<sop>{% for m in messages %}{{ '<|' + m.role + '|>' }}{{ (m.metadata or '') + '\n' }}{% if m.role == 'assistant' %}"
        "{% generation %}{{ m.content }}{% endgeneration %}{% elif m.role == 'tool' %}{{ 'observation\n' + m.content }}{% else %}"
        "{{ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
    ),
    "solar": (
        "{% for m in messages %}{% if m.role == 'system' %}{{ '### System:\n' + m.content + '\n\n' }}{% elif m.role == 'user' %}"
        "{{ '### User:\n' + m.content + '\n\n' }}{% elif m.role == 'assistant' %}{{ '### Assistant:\n' }}{% generation %}"
        "{{ m.content + '\n\n' }}{% endgeneration %}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '### Assistant:\n' }}{% endif %}"
    ),
    "hermes with tools": (
        "{%- if tools %}{{- '<|im_start|>system\n<tools> ' + tools | tojson(separators=(',', ':'), sort_keys=true) + ' </tools><|im_end|>\n' }}"
        "{%- endif %}{%- for m in messages %}{%- if m.role == 'assistant' %}{{- '<|im_start|>assistant\n' }}{%- generation %}"
        "{{- m.content or '' }}" + CALLS + "{{- '<|im_end|>' }}{%- endgeneration %}{{- '\n' }}{%- else %}"
        "{{- '<|im_start|>' + m.role + '\n' + (m.content if m.content is string else m.content | tojson) + '<|im_end|>\n' }}{%- endif %}"
        "{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"
    ),
    "jamba": _turns(
        "'<|bom|>' + {'system': '<|system|> ', 'user': '<|user|> ', 'assistant': '<|assistant|> '}.get(m.role, '<|tool|> ')",
        "<|eom|>",
        before="{{ bos_token }}",
        prompt="{{ '<|bom|><|assistant|> ' }}",
    ),
    "exaone": (
        "{% for m in messages %}{% if loop.first and m.role != 'system' %}{{ '[|system|][|endofturn|]\n' }}{% endif %}"
        "{{ '[|' + m.role + '|]' }}{% if m.role == 'user' %}{{ m.content + '\n' }}{% elif m.role == 'assistant' %}{% generation %}"
        "{{ m.content + '[|endofturn|]\n' }}{% endgeneration %}{% else %}{{ m.content + '[|endofturn|]\n' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '[|assistant|]' }}{% endif %}"
    ),
    "starchat": _turns("'<|' + m.role + '|>\n'", "{{ '<|end|>\n' }}", prompt="{{ '<|assistant|>\n' }}"),
    "minicpm": (
        "{% for m in messages %}{% if m.role == 'user' %}{{ '<用户>' + m.content.strip() + '<AI>' }}{% elif m.role == 'assistant' %}"
        "{% generation %}{{ m.content.strip() }}{% endgeneration %}{% else %}{{ m.content.strip() }}{% endif %}{% endfor %}"
    ),
    "nemotron": (
        "{{ '<extra_id_0>System' }}{% for m in messages %}{% if m.role == 'system' %}{{ '\n' + m.content.strip() }}{% endif %}{% endfor %}"
        "{{ '\n' }}{% for m in messages %}{% if m.role == 'user' %}{{ '\n<extra_id_1>User\n' + m.content.strip() }}"
        "{% elif m.role == 'assistant' %}{{ '\n<extra_id_1>Assistant\n' }}{% generation %}{{ m.content.strip() }}{% endgeneration %}"
        "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '\n<extra_id_1>Assistant\n' }}{% endif %}"
    ),
    "kimi": (
        "{%- for m in messages -%}{%- if m.role == 'user' -%}<|im_user|>user<|im_middle|>{%- elif m.role == 'assistant' -%}"
        "<|im_assistant|>assistant<|im_middle|>{%- else -%}<|im_system|>{{ m.name or m.role }}<|im_middle|>{%- endif -%}"
        "{%- if m.role == 'assistant' -%}{%- generation -%}{{ m.content }}<|im_end|>{%- endgeneration -%}"
        "{%- elif m.content is string -%}{{ m.content }}<|im_end|>{%- else -%}{%- for p in m.content -%}{{ p.text }}{%- endfor -%}"
        "<|im_end|>{%- endif -%}{%- endfor -%}{%- if add_generation_prompt -%}<|im_assistant|>assistant<|im_middle|>{%- endif -%}"
    ),
    "mpt": _turns(
        "('' if loop.first else '\n') + '<|im_start|>' + m.role + '\n'",
        "<|im_end|>",
        prompt="{{ '\n<|im_start|>assistant\n' }}",
    ),
    "wizard": (
        "{% set n = namespace(last='') %}{% for m in messages %}{% if m.role == 'user' %}{{ ' USER: ' + m.content }}"
        "{% elif m.role == 'assistant' %} ASSISTANT:{% generation %} {{ m.content }}{% endgeneration %}{{ eos_token }}"
        "{% set n.last = m.content %}{% else %}{{ m.content }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %} ASSISTANT:{% endif %}"
    ),
    "loops that break": (
        "{% for m in messages %}{% if m.role == 'tool' %}{% continue %}{% endif %}{% if loop.index > 6 %}{% break %}{% endif %}"
        "{{ m.role + '>' }}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}"
        "{% endif %}{{ '\n' }}{% endfor %}{% if add_generation_prompt %}assistant>{% endif %}"
    ),
    "a macro": (
        "{% macro turn(m) %}{{ '<' + m.role + '>' }}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}"
        "{% else %}{{ m.content }}{% endif %}{{ '</' + m.role + '>' }}{% endmacro %}"
        "{% for m in messages %}{{ turn(m) }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
    ),
    "tags within tags": (
        "{% for m in messages %}{{ m.role }}: {% if m.role == 'assistant' %}{% generation %}{{ '(' }}{% generation %}{{ m.content }}"
        "{% endgeneration %}{{ ')' }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}; {% endfor %}"
    ),
    "every special token": (
        "{{ bos_token }}{{ eos_token }}{{ unk_token }}{{ pad_token }}{{ sep_token }}{{ cls_token }}{{ mask_token }}{{ image_token }}"
        "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}{% else %}"
        "{{ m.content }}{% endif %}{{ pad_token if pad_token is defined else '#' }}{% endfor %}"
    ),
    "messages as json": (
        "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m | tojson(separators=(', ', '='), sort_keys=true) }}"
        "{% endgeneration %}{% else %}{{ m | tojson(indent=2, ensure_ascii=true) }}{% endif %}{{ '\n' }}{% endfor %}"
    ),
}
