"""The ECMAScript engines of the package index, tried on roo's vectors: the table of docs/expressions.md.

`python tests/bench/engines.py VECTORS/roo.jsonl [PACKAGE…]` installs each package into a folder of its
own and runs each vector in a fork that is killed after four seconds.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Engine = Callable[[str], str]

PACKAGES = ("quickjs-ng", "quickjs", "mini-racer", "pythonmonkey", "dukpy", "regress")
HANGS_SECONDS = 4
CATASTROPHE = json.dumps(["(a+)+$", "g", "a" * 40 + "!", ""])
STOP_SECONDS = 0.5

REPLACE = """
function go(json) {
  var given = JSON.parse(json), expression;
  try { expression = new RegExp(given[0], given[1]); } catch (error) { return JSON.stringify(null); }
  return JSON.stringify(given[2].replace(expression, given[3]));
}
"""


def main() -> None:
    if sys.argv[1] == "--one":
        print(" | ".join(("", *row(sys.argv[2], sys.argv[3]), "")).strip())
        return
    vectors, packages = sys.argv[1], sys.argv[2:] or PACKAGES
    print("| engine | version | right | hangs | stops itself | start | installed |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for package in packages:
        with tempfile.TemporaryDirectory() as folder:
            install = [sys.executable, "-m", "pip", "install", "--quiet", "--target", folder, package]
            subprocess.run(install, check=True, stderr=subprocess.DEVNULL)
            one = [sys.executable, __file__, "--one", package, vectors]
            subprocess.run(one, check=False, env={**os.environ, "PYTHONPATH": folder})


def row(package: str, vectors: str) -> list[str]:
    start = time.perf_counter()
    engine = ENGINES[package]()
    engine(json.dumps(["a", "g", "a", "b"]))
    started = time.perf_counter() - start
    outcomes = [outcome(package, case) for case in cases(vectors)]
    return [
        package,
        version(package),
        f"{outcomes.count('right')} of {len(outcomes)}",
        str(outcomes.count("hangs")),
        "yes" if in_a_fork(lambda: stops(package)) == "right" else "no",
        f"{started * 1000:.0f} ms",
        f"{size(os.environ['PYTHONPATH']) / 1e6:.0f} MB",
    ]


def outcome(package: str, case: tuple[str, Callable[[str | None], bool]]) -> str:
    given, is_right = case
    return in_a_fork(lambda: is_right(json.loads(ENGINES[package]()(given))))


def stops(package: str) -> bool:
    """Does the engine end the search by itself, if it can be told to? Called in a fork that may hang."""
    start = time.perf_counter()
    try:
        ENGINES[package]()(CATASTROPHE)
    except Exception:  # noqa: BLE001  # each engine has its own
        return time.perf_counter() - start < 2 * STOP_SECONDS
    return False


def in_a_fork(check: Callable[[], bool]) -> str:
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(HANGS_SECONDS)
        try:
            os._exit(0 if check() else 1)
        except BaseException:  # noqa: BLE001  # a child that is forked may do nothing but end
            os._exit(2)
    status = os.waitpid(child, 0)[1]
    return "hangs" if os.WIFSIGNALED(status) else "right" if status == 0 else "wrong"


def cases(path: str) -> Iterator[tuple[str, Callable[[str | None], bool]]]:
    """What the tool asks of its engine, and whether an answer is right, for each vector that gets there."""
    with open(path) as lines:
        for vector in map(json.loads, lines):
            call, after = vector["call"], vector["expect"]
            if "peer-quirk" in vector["tags"] or not all(isinstance(value, str) for value in call.values()):
                continue
            text = vector.get("files", {}).get(call.get("path"))
            if text is None or "replace" not in call or not call.get("search"):
                continue
            wanted = text if after.get("error") == "no_change" else after.get("files", {}).get(call["path"])
            if wanted is None and after.get("error") != "invalid_regex":
                continue
            yield _case(call, text, wanted)


def _case(call: dict[str, Any], text: str, wanted: str | None) -> tuple[str, Callable[[str | None], bool]]:
    lines = text.split("\n")
    first = max(_number(call.get("start_line"), 1) - 1, 0)
    last = min(_number(call.get("end_line"), len(lines)), len(lines))
    before = "".join(f"{line}\n" for line in lines[:first])
    after = "".join(f"\n{line}" for line in lines[last:])
    pattern = call["search"]
    if call.get("use_regex") != "true":
        pattern = re.sub(r"[.*+?^${}()|\[\]\\]", r"\\\g<0>", pattern)
    flags = "gi" if call.get("ignore_case") == "true" else "g"
    given = json.dumps([pattern, flags, "\n".join(lines[first:last]), call["replace"]])

    def is_right(answer: str | None) -> bool:
        return answer == wanted if answer is None or wanted is None else before + answer + after == wanted

    return given, is_right


def _number(given: str | None, default: int) -> int:
    return int(given.split(".")[0]) if given else default


def size(folder: str) -> int:
    return sum(
        os.path.getsize(os.path.join(where, name)) for where, _, names in os.walk(folder) for name in names
    )


# ── The engines ────────────────────────────────────────────────────────────────────────────────────


def _quickjs() -> Engine:
    context = import_module("quickjs").Context()
    context.eval(REPLACE)
    go = context.get("go")
    context.set_time_limit(STOP_SECONDS)
    return lambda given: str(go(given))


def _mini_racer() -> Engine:
    context = import_module("py_mini_racer").MiniRacer()
    context.eval(REPLACE)
    return lambda given: str(context.eval(f"go({json.dumps(given)})", timeout_sec=STOP_SECONDS))


def _pythonmonkey() -> Engine:
    pythonmonkey = import_module("pythonmonkey")
    pythonmonkey.eval(REPLACE)
    go = pythonmonkey.eval("go")
    return lambda given: str(go(given))


def _dukpy() -> Engine:
    context = import_module("dukpy").JSInterpreter()
    context.evaljs(REPLACE)
    return lambda given: str(context.evaljs("go(dukpy['given'])", given=given))


def _regress() -> Engine:
    """It only finds: a template is not worked out, and counts as wrong."""
    regress = import_module("regress")

    def go(given: str) -> str:
        pattern, flags, text, template = json.loads(given)
        try:
            expression = regress.Regex(pattern, flags.replace("g", ""))
        except regress.RegressError:
            return "null"
        if "$" in template:
            return json.dumps("")
        content, pieces, end = text.encode(), [], 0
        for match in expression.find_iter(text):
            pieces += [content[end : match.range().start], template.encode()]
            end = match.range().stop
        return json.dumps(b"".join([*pieces, content[end:]]).decode())

    return go


ENGINES: dict[str, Callable[[], Engine]] = {
    "quickjs-ng": _quickjs,
    "quickjs": _quickjs,
    "mini-racer": _mini_racer,
    "pythonmonkey": _pythonmonkey,
    "dukpy": _dukpy,
    "regress": _regress,
}

if __name__ == "__main__":
    main()
