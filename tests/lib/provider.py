# SPDX-License-Identifier: Apache-2.0
"""A model's provider on the loopback that says what a test wants said, in the wire formats of three families. Only the standard library.

    with Provider(openai.turn("I compute.", [("c1", "run_python", '{"code": "print(1)"}')]), openai.turn("It is 1.")) as p:
        ...
    assert p.asked[0].path == "/v1/chat/completions"

The shapes are written down by hand from the providers' references: Anthropic's Messages API (2023-06-01) with its streaming
events, OpenAI's Chat Completions with its chunks, Gemini's generateContent with alt=sse. tests/clients/test_ask_sdks.py holds them
against the published SDKs.
"""
import http.server
import itertools
import json
import select
import socket
import struct
import threading
import time
from types import SimpleNamespace

STALL = object()  # in a Reply's pieces: nothing more, until the client goes away
RESET = object()  # the connection breaks


class Reply:
    """status and headers, then pieces as they are; a piece may be STALL, RESET or a number of seconds."""
    def __init__(self, pieces=(), status=200, type="application/json", length=False, **headers):
        self.pieces = [pieces] if isinstance(pieces, (bytes, str)) else list(pieces)
        self.pieces = [p.encode() if isinstance(p, str) else p for p in self.pieces]
        self.status, self.headers = status, {"Content-Type": type, **{k.replace("_", "-"): v for k, v in headers.items()}}
        if length:
            self.headers["Content-Length"] = str(sum(map(len, self.pieces)))


def whole(body, status=200, **headers):
    return Reply(json.dumps(body), status, length=True, **headers)


def sse(events, *more, done=None, size=7):
    """Events as a stream, in pieces of SIZE bytes, so that every boundary is cut somewhere."""
    text = "".join((f"event: {e['type']}\n" if "type" in e else "") + f"data: {json.dumps(e)}\n\n" for e in events)
    data = (text + (f"data: {done}\n\n" if done else "")).encode()
    return Reply([*(data[i:i + size] for i in range(0, len(data), size)), *more], type="text/event-stream")


def ends(reply, *more):
    """The same reply with something in the place of its end."""
    reply.pieces[len(reply.pieces) // 2:] = more
    return reply


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        provider = self.server.provider
        body = self.rfile.read(int(self.headers["Content-Length"]))
        provider.asked.append(SimpleNamespace(path=self.path, headers=dict(self.headers), body=body, json=json.loads(body), time=time.monotonic()))
        reply = provider.replies.pop(0) if provider.replies else whole({"error": {"message": "nothing more is scripted"}}, 400)
        reply = whole(reply) if isinstance(reply, dict) else reply
        if reply is RESET:
            return self.reset()
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.end_headers()
        for piece in reply.pieces:
            if piece is RESET:
                return self.reset()
            if piece is STALL:
                provider.stalled.set()
                select.select([self.connection, provider.wake[0]], [], [], 60)
                provider.gone.set()
                return None
            if isinstance(piece, (int, float)):
                time.sleep(piece)
                continue
            try:
                self.wfile.write(piece)
            except OSError:
                provider.gone.set()
                return None
        return None

    def reset(self):
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True

    def finish(self):
        try:
            super().finish()
        except (OSError, ValueError):
            pass

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        pass  # a client that goes away


class Provider:
    """Answers each POST with the next of some replies (or JSON bodies) and keeps what was asked."""
    def __init__(self, *replies):
        self.asked, self.replies = [], list(replies)
        self.stalled, self.gone, self.wake = threading.Event(), threading.Event(), socket.socketpair()
        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.provider = self
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.wake[1].close()
        self.server.shutdown()
        self.server.server_close()
        self.wake[0].close()


# ------------------------------------------------------------------------------------------------- the families


def halves(text):
    return [text[:len(text) // 2], text[len(text) // 2:]] if len(text) > 1 else [text]


class Anthropic:
    name, key, model, base = "anthropic", "ANTHROPIC_API_KEY", "claude-scripted-1", ""
    path = "/v1/messages"

    def events(self, text="", calls=(), stop=None, thinking=""):
        """A stream: blocks by index, each started, grown and stopped."""
        yield {"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant", "model": self.model, "content": [],
                                                    "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 11, "output_tokens": 1}}}
        yield {"type": "ping"}
        blocks = []
        if thinking:
            blocks.append(({"type": "thinking", "thinking": "", "signature": ""},
                           [{"type": "thinking_delta", "thinking": t} for t in halves(thinking)] + [{"type": "signature_delta", "signature": "c2ln"}]))
        if text:
            blocks.append(({"type": "text", "text": ""}, [{"type": "text_delta", "text": t} for t in halves(text)]))
        for id_, name, arguments in calls:
            blocks.append(({"type": "tool_use", "id": id_, "name": name, "input": {}},
                           [{"type": "input_json_delta", "partial_json": t} for t in ["", *halves(arguments)]]))
        for i, (start, deltas) in enumerate(blocks):
            yield {"type": "content_block_start", "index": i, "content_block": start}
            for delta in deltas:
                yield {"type": "content_block_delta", "index": i, "delta": delta}
            yield {"type": "content_block_stop", "index": i}
        yield {"type": "message_delta", "delta": {"stop_reason": stop or ("tool_use" if calls else "end_turn"), "stop_sequence": None},
               "usage": {"output_tokens": 7}}
        yield {"type": "message_stop"}

    def turn(self, text="", calls=(), **more):
        return sse(self.events(text, calls, **more))

    def whole(self, text="", calls=(), stop=None):
        content = [{"type": "text", "text": text}] if text else []
        content += [{"type": "tool_use", "id": i, "name": n, "input": json.loads(a)} for i, n, a in calls]
        return whole({"id": "msg_1", "type": "message", "role": "assistant", "model": self.model, "content": content,
                      "stop_reason": stop or ("tool_use" if calls else "end_turn"), "stop_sequence": None,
                      "usage": {"input_tokens": 11, "output_tokens": 7}})

    def error(self, status, message="no", **headers):
        kind = {400: "invalid_request_error", 401: "authentication_error", 429: "rate_limit_error", 529: "overloaded_error"}.get(status, "api_error")
        return whole({"type": "error", "error": {"type": kind, "message": message}}, status, **headers)

    def told(self, request):
        """{id: text} of the results that the last message has."""
        return {b["tool_use_id"]: b["content"] for b in request["messages"][-1]["content"] if b["type"] == "tool_result"}

    def called(self, request):
        """[(name, arguments)] that went back as the model's own."""
        return [(b["name"], b["input"]) for b in request["messages"][-2]["content"] if b["type"] == "tool_use"]

    refusal, cut = "refusal", "max_tokens"


class OpenAI:
    ids = itertools.count()  # LangGraph takes two messages of one id for one
    name, key, model, base = "openai", "OPENAI_API_KEY", "gpt-scripted", "/v1"
    path = "/v1/chat/completions"

    def chunk(self, delta, finish=None, **more):
        return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": self.model,
                "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}

    def events(self, text="", calls=(), stop=None):
        """Chunks: pieces of calls by index, the usage in a last chunk without choices."""
        yield self.chunk({"role": "assistant", "content": ""})
        for t in halves(text):
            yield self.chunk({"content": t})
        for i, (id_, name, arguments) in enumerate(calls):
            yield self.chunk({"tool_calls": [{"index": i, "id": id_, "type": "function", "function": {"name": name, "arguments": ""}}]})
            for t in halves(arguments):
                yield self.chunk({"tool_calls": [{"index": i, "function": {"arguments": t}}]})
        yield self.chunk({}, stop or ("tool_calls" if calls else "stop"))
        yield {**self.chunk({}), "choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}}

    def turn(self, text="", calls=(), **more):
        return sse(self.events(text, calls, **more), done="[DONE]")

    def whole(self, text="", calls=(), stop=None):
        message = {"role": "assistant", "content": text or None}
        if calls:
            message["tool_calls"] = [{"id": i, "type": "function", "function": {"name": n, "arguments": a}} for i, n, a in calls]
        return whole({"id": f"chatcmpl-{next(self.ids)}", "object": "chat.completion", "created": 1, "model": self.model,
                      "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
                      "choices": [{"index": 0, "finish_reason": stop or ("tool_calls" if calls else "stop"), "message": message}]})

    def error(self, status, message="no", **headers):
        return whole({"error": {"message": message, "type": "some_error", "param": None, "code": None}}, status, **headers)

    def told(self, request):
        return {m["tool_call_id"]: m["content"] for m in request["messages"] if m["role"] == "tool"}

    def called(self, request):
        last = [m for m in request["messages"] if m["role"] == "assistant"][-1]
        return [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in last["tool_calls"]]

    refusal, cut = "content_filter", "length"


class Gemini:
    name, key, model, base = "gemini", "GEMINI_API_KEY", "gemini-scripted", ""
    path = "/v1beta/models/gemini-scripted:streamGenerateContent?alt=sse"

    def answer(self, parts, finish=None):
        candidate = {"content": {"role": "model", "parts": parts}, "index": 0, **({"finishReason": finish} if finish else {})}
        return {"candidates": [candidate], "usageMetadata": {"promptTokenCount": 11, "candidatesTokenCount": 7, "totalTokenCount": 18},
                "modelVersion": self.model}

    def call(self, id_, name, arguments):
        return {"functionCall": {"id": id_, "name": name, "args": json.loads(arguments)}, "thoughtSignature": "c2ln"}

    def events(self, text="", calls=(), stop=None):
        """Whole answers in a row: calls are never cut."""
        for t in halves(text):
            yield self.answer([{"text": t}])
        for c in calls:
            yield self.answer([self.call(*c)])
        yield self.answer([{"text": ""}], stop or "STOP")

    def turn(self, text="", calls=(), **more):
        return sse(self.events(text, calls, **more))

    def whole(self, text="", calls=(), stop=None):
        return whole(self.answer([*([{"text": text}] if text else []), *(self.call(*c) for c in calls)], stop or "STOP"))

    def error(self, status, message="no", **headers):
        return whole({"error": {"code": status, "message": message, "status": {429: "RESOURCE_EXHAUSTED"}.get(status, "UNKNOWN")}}, status, **headers)

    def told(self, request):
        return {p["functionResponse"]["id"]: p["functionResponse"]["response"]["result"] for p in request["contents"][-1]["parts"]}

    def called(self, request):
        return [(p["functionCall"]["name"], p["functionCall"]["args"]) for p in request["contents"][-2]["parts"] if "functionCall" in p]

    refusal, cut = "SAFETY", "MAX_TOKENS"


anthropic, openai, gemini = Anthropic(), OpenAI(), Gemini()
FAMILIES = [anthropic, openai, gemini]
