"""A model that plays a script of tool calls, on 127.0.0.1, for real agents: what they do then is known ahead.

Speaks three dialects of HTTP, each streamed or not: OpenAI's responses and chat completions, and Gemini's.
The step to play follows from the calls in the request's own history, so that a retry gets the same answer.
"""

from __future__ import annotations

import contextlib
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Json = dict[str, Any]
USAGE = {
    "input_tokens": 9,
    "output_tokens": 9,
    "total_tokens": 18,
    "prompt_tokens": 9,
    "completion_tokens": 9,
}
CALLS = ("function_call", "custom_tool_call", "local_shell_call")


@dataclass(frozen=True)
class Step:
    """One turn of the model: a call, for each tool that may be offered its arguments, or a text at the end.

    `before` is run first, as though somebody else did something meanwhile.
    """

    tools: dict[str, Json] = field(default_factory=dict)
    text: str = "done"
    before: Callable[[], object] | None = None


@dataclass
class Model:
    """The scripts by name, and the results of tools that each agent has reported so far."""

    port: int
    scripts: dict[str, Sequence[Step]] = field(default_factory=dict)
    results: dict[str, list[str]] = field(default_factory=dict)
    offered: dict[str, list[str]] = field(default_factory=dict)
    _done: set[tuple[str, int]] = field(default_factory=set)

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.port}/{name}"

    def play(
        self, name: str, offered: Sequence[str], count: int, results: list[Any]
    ) -> tuple[str, Json] | str:
        """Return the tool to call and its arguments, or the text that ends the turn."""
        if not offered:
            return "A title"  # a request beside the main loop
        self.results[name] = [one if isinstance(one, str) else json.dumps(one) for one in results]
        self.offered[name] = list(offered)
        steps = self.scripts[name]
        if count >= len(steps):
            return "done"
        step = steps[count]
        if step.before is not None and (name, count) not in self._done:
            self._done.add((name, count))
            step.before()
        for tool, arguments in step.tools.items():
            if tool in offered:
                return tool, arguments
        assert not step.tools, f"none of {list(step.tools)} is offered, but {offered}"
        return step.text


@contextlib.contextmanager
def scripted_model() -> Iterator[Model]:
    """Serve until the block is left."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        server.daemon_threads = True
        model = Model(server.server_address[1])
        _Handler.model = model
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield model
        server.shutdown()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    model: Model

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Print nothing."""

    def do_GET(self) -> None:
        self._answer({"object": "list", "data": [{"id": "scripted", "object": "model"}], "models": []})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "{}")
        name, _, path = self.path.partition("?")[0].strip("/").partition("/")
        if path.endswith("/responses"):
            self._answer_events(_responses(self.model, name, body))
        elif path.endswith("/chat/completions"):
            self._answer_events(_chat(self.model, name, body))
        elif "generateContent" in path or "GenerateContent" in path:
            answer = _gemini(self.model, name, body)
            if "stream" in path:
                self._answer_events([("", answer)])
            else:
                self._answer(answer)
        else:
            self._answer({"totalTokens": 9})

    def _answer(self, document: Json) -> None:
        self._send("application/json", json.dumps(document))

    def _answer_events(self, events: Sequence[tuple[str, Json | str]]) -> None:
        lines = [
            (f"event: {event}\n" if event else "")
            + f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n"
            for event, data in events
        ]
        self._send("text/event-stream", "".join(lines))

    def _send(self, kind: str, text: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())


def _responses(model: Model, name: str, body: Json) -> list[tuple[str, Json | str]]:
    items = body["input"]
    kinds, spaces = dict[str, str](), dict[str, str]()
    for tool in body.get("tools") or []:
        for inner in tool.get("tools") or [tool]:  # the tools of an MCP server are in a namespace
            if "name" in inner:
                kinds[inner["name"]] = inner["type"]
                spaces |= {inner["name"]: tool["name"]} if inner is not tool else {}
    count = sum(item.get("type") in CALLS for item in items)
    results = [item["output"] for item in items if str(item.get("type")).endswith("_call_output")]
    step = model.play(name, list(kinds), count, results)
    if isinstance(step, str):
        text = {"type": "output_text", "text": step, "annotations": []}
        item = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [text]}
    else:
        tool, arguments = step
        item = {"id": f"i{count}", "call_id": f"call_{count}", "status": "completed", "name": tool}
        if kinds[tool] == "custom":
            item |= {"type": "custom_tool_call", "input": arguments["input"]}
        else:
            item |= {"type": "function_call", "arguments": json.dumps(arguments)}
            item |= {"namespace": spaces[tool]} if tool in spaces else {}
    made = {"id": f"r{count}", "object": "response", "created_at": 1, "model": "scripted", "usage": USAGE}
    begun = {**made, "status": "in_progress", "output": []}
    ended = {**made, "status": "completed", "output": [item]}
    events: list[Json] = [
        {"type": "response.created", "response": begun},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": ended},
    ]
    return [(event["type"], event) for event in events]


def _chat(model: Model, name: str, body: Json) -> list[tuple[str, Json | str]]:
    messages = body["messages"]
    offered = [tool["function"]["name"] for tool in body.get("tools") or []]
    count = sum(len(one.get("tool_calls") or []) for one in messages if one["role"] == "assistant")
    results = [one["content"] for one in messages if one["role"] == "tool"]
    step = model.play(name, offered, count, results)
    message: Json = {"role": "assistant", "content": step if isinstance(step, str) else None}
    if not isinstance(step, str):
        call = {"name": step[0], "arguments": json.dumps(step[1])}
        message["tool_calls"] = [{"index": 0, "id": f"call_{count}", "type": "function", "function": call}]
    chunk: Json = {"id": "c", "created": 1, "model": "scripted", "object": "chat.completion.chunk"}
    end = "stop" if isinstance(step, str) else "tool_calls"
    return [
        ("", {**chunk, "choices": [{"index": 0, "delta": message, "finish_reason": None}]}),
        ("", {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": end}], "usage": USAGE}),
        ("", "[DONE]"),
    ]


def _gemini(model: Model, name: str, body: Json) -> Json:
    offered = [
        one["name"] for tool in body.get("tools") or [] for one in tool.get("functionDeclarations") or []
    ]
    parts = [part for content in body.get("contents", []) for part in content.get("parts", [])]
    count = sum("functionCall" in part for part in parts)
    results = [part["functionResponse"].get("response") for part in parts if "functionResponse" in part]
    step = model.play(name, offered, count, results)
    part: Json = {"text": step} if isinstance(step, str) else {}
    if not isinstance(step, str):
        part = {"functionCall": {"id": f"call_{count}", "name": step[0], "args": step[1]}}
    elif not offered:  # a router beside the main loop, which expects JSON
        part = {"text": json.dumps({"reasoning": "x", "model_choice": "flash", "next_speaker": "user"})}
    candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
    usage = {"promptTokenCount": 9, "candidatesTokenCount": 9, "totalTokenCount": 18}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "scripted"}
