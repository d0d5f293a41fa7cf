# SPDX-License-Identifier: Apache-2.0
"""The providers' SDKs on both sides of `cloche ask`: they read what tests/lib/provider.py says, and their own types check what cloche asked.

    drive_ask.py read FAMILY URL MODEL      asks four times, streaming and not; prints what the SDK understood of each answer
    drive_ask.py check FAMILY               checks the requests on stdin (a JSON list) with the SDK's types
"""
import json
import sys
import typing

from pydantic import ConfigDict, TypeAdapter

QUESTION = [{"role": "user", "content": "?"}]


def read_anthropic(url, model):
    import anthropic
    client = anthropic.Anthropic(base_url=url, api_key="x", max_retries=0)
    for streamed in (True, True, False, False):
        if streamed:
            with client.messages.stream(model=model, max_tokens=9, messages=QUESTION) as stream:
                m = stream.get_final_message()
        else:
            m = client.messages.create(model=model, max_tokens=9, messages=QUESTION)
        yield ["".join(b.text for b in m.content if b.type == "text"), [[b.id, b.name, b.input] for b in m.content if b.type == "tool_use"],
               m.stop_reason, m.usage.input_tokens, m.usage.output_tokens]


def read_openai(url, model):
    import openai
    client = openai.OpenAI(base_url=url, api_key="x", max_retries=0)
    for streamed in (True, True, False, False):
        if streamed:
            with client.chat.completions.stream(model=model, messages=QUESTION, stream_options={"include_usage": True}) as stream:
                c = stream.get_final_completion()
        else:
            c = client.chat.completions.create(model=model, messages=QUESTION)
        m = c.choices[0].message
        yield [m.content or "", [[t.id, t.function.name, json.loads(t.function.arguments)] for t in m.tool_calls or []], c.choices[0].finish_reason,
               c.usage.prompt_tokens, c.usage.completion_tokens]


def read_gemini(url, model):
    from google import genai
    client = genai.Client(api_key="x", http_options={"base_url": url})
    for streamed in (True, True, False, False):
        answers = list(client.models.generate_content_stream(model=model, contents="?")) if streamed else [client.models.generate_content(model=model, contents="?")]
        parts = [p for a in answers for p in a.candidates[0].content.parts]
        calls = [[p.function_call.id, p.function_call.name, p.function_call.args] for p in parts if p.function_call]
        last = answers[-1]
        yield ["".join(p.text or "" for p in parts), calls, last.candidates[0].finish_reason.value, last.usage_metadata.prompt_token_count,
               last.usage_metadata.candidates_token_count]


def force(value):
    """Lists that the SDKs declare as Iterable are checked only when they are walked."""
    if isinstance(value, dict):
        return {k: force(v) for k, v in value.items()}
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        return value
    return [force(v) for v in value]


def strict(kind, seen=()):
    """All TypedDicts in a type refuse what they do not name."""
    if typing.is_typeddict(kind) and kind not in seen:
        kind.__pydantic_config__ = ConfigDict(extra="forbid")
        for hint in typing.get_type_hints(kind).values():
            strict(hint, (*seen, kind))
    for inner in typing.get_args(kind):
        strict(inner, seen)


def differences(a, b, at=""):
    if type(a) is type(b) and isinstance(a, dict):
        for k in {*a, *b}:
            yield from differences(a.get(k), b.get(k), f"{at}.{k}")
    elif type(a) is type(b) and isinstance(a, list) and len(a) == len(b):
        for i, (x, y) in enumerate(zip(a, b)):
            yield from differences(x, y, f"{at}[{i}]")
    elif a != b:
        yield at, a, b


def check_typed(kind, request):
    strict(kind)
    adapter = TypeAdapter(kind)  # has to live as long as what is walked
    checked = force(adapter.validate_python(request))
    assert checked == request, list(differences(checked, request))


def check_anthropic(request):
    from anthropic.types.message_create_params import MessageCreateParamsStreaming
    check_typed(MessageCreateParamsStreaming, request)


def check_openai(request):
    from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
    check_typed(CompletionCreateParamsStreaming, request)


def check_gemini(request):
    from google.genai import types
    assert set(request) <= {"contents", "tools", "systemInstruction", "generationConfig"}, set(request)
    for content in request["contents"]:
        types.Content.model_validate(content)
    types.GenerateContentConfig.model_validate({**request["generationConfig"], "systemInstruction": request["systemInstruction"], "tools": request["tools"]})


if __name__ == "__main__":
    what, family, *rest = sys.argv[1:]
    if what == "read":
        print(json.dumps(list(globals()[f"read_{family}"](*rest))))
    else:
        for one in json.load(sys.stdin):
            globals()[f"check_{family}"](one)
        print("checked")
