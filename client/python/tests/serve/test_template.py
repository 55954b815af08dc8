"""Chat templates: as transformers renders them, in a sandbox, messages as clients send them."""

import pytest

pytest.importorskip("jinja2")

from coppice.generation.template import ChatTemplate, plain

CHATML = """{{ bos_token }}{%- if tools %}
tools:
{%- for tool in tools %}

    {{ tool | tojson }}
{%- endfor %}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'stop' %}{% break %}{% endif %}
    {%- generation %}
<|im_start|>{{ message.role }}
{{ message.content | trim }}<|im_end|>
    {%- endgeneration %}
{%- endfor %}
{%- if add_generation_prompt %}

<|im_start|>assistant
{% endif %}"""

MESSAGES = [
    {"role": "system", "content": "Be brief. "},
    {"role": "user", "content": "h\u00e9 <b> & 'quotes'"},
    {"role": "stop", "content": "never"},
]
TOOLS = [{"type": "function", "function": {"name": "f", "description": "<\u00e9>"}}]


@pytest.mark.parametrize("tools", [None, TOOLS])
def test_as_transformers_renders_it(tools):
    utils = pytest.importorskip("transformers.utils.chat_template_utils")
    ours = ChatTemplate(CHATML, {"bos_token": "<s>"}).render(MESSAGES, tools)
    theirs, _ = utils.render_jinja_template(
        [MESSAGES], tools=tools, chat_template=CHATML, add_generation_prompt=True, bos_token="<s>"
    )
    assert ours == theirs[0]


def test_the_prompt_ends_where_the_model_answers():
    text = ChatTemplate(CHATML, {"bos_token": "<s>"}).render(MESSAGES, TOOLS)
    assert text.startswith("<s>tools:\n") and text.endswith("<|im_start|>assistant\n")
    assert "\u00e9 <b> & 'quotes'" in text and "never" not in text


def test_a_template_cannot_reach_out():
    source = "{{ ''.__class__.__mro__[1].__subclasses__() }}"
    with pytest.raises(ValueError, match="refuses"):
        ChatTemplate(source, {}).render([], None)
    with pytest.raises(ValueError, match="refuses"):
        ChatTemplate("{{ messages.append(1) }}", {}).render(MESSAGES, None)


def test_a_template_says_what_it_does_not_take():
    template = ChatTemplate("{{ raise_exception('roles must alternate') }}", {})
    with pytest.raises(ValueError, match="roles must alternate"):
        template.render(MESSAGES, None)
    with pytest.raises(ValueError, match="line 1"):
        ChatTemplate("{% if %}", {})


def test_parts_are_joined_and_arguments_are_objects():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert plain({"role": "user", "content": parts})["content"] == "ab"
    call = {"function": {"name": "f", "arguments": '{"x": 1}'}}
    assert plain({"tool_calls": [call]})["tool_calls"][0]["function"]["arguments"] == {"x": 1}
    with pytest.raises(ValueError, match="image_url"):
        plain({"role": "user", "content": [{"type": "image_url"}]})
    with pytest.raises(ValueError, match="a text or a list of parts, not int"):
        plain({"role": "user", "content": 5})
