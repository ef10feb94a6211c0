"""The client against the wire's other half on a real socket."""

from __future__ import annotations

import contextlib
import inspect
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from editd.wire import messages
from editd_client.client import Client
from editd_client.errors import EditdError, FileMissing, Unreachable
from editd_client.locate import login_name
from support.crash_checks import wait_until
from support.scripted_daemon import scripted
from support.workplace import write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.workplace import Workplace


@contextlib.contextmanager
def interrupted(place: Workplace, error: type[BaseException]) -> Iterator[None]:
    """The daemon stands still, and after a moment a signal's handler raises this, which must come out."""
    assert place.process is not None

    def handle(*_: object) -> None:
        raise error("by the handler")

    before = signal.signal(signal.SIGALRM, handle)
    place.process.send_signal(signal.SIGSTOP)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(error, match="by the handler"):
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        place.process.send_signal(signal.SIGCONT)


def test_there_is_a_method_for_each_of_the_protocol_with_its_parameters() -> None:
    for name, params in messages.REQUESTS.items():
        offered = set(inspect.signature(getattr(Client, name.replace(".", "_"))).parameters) - {"self"}
        asked = set(params.__struct_fields__)
        if name == "hello":
            asked -= {"protocol", "errors", "seen"}  # what this client speaks is not its user's choice
        if name == "subscribe":
            asked -= {"notify"}  # it reads what comes by itself
        if name == "exec.end":
            asked = asked - {"exec", "all"} | {"name", "every"}  # words of Python's
        if name in ("exec.begin", "turn.note"):
            asked = asked - {"call"} | {"tool_call"}  # `call` sends a request
        assert offered == asked, name


def test_a_result_comes_as_the_type_that_the_protocol_names(tmp_path: Path) -> None:
    with (
        scripted(tmp_path / "s", lambda _: messages.LogResult(transactions=[], more=True)) as asked,
        Client(str(tmp_path / "s")) as client,
    ):
        assert client.log(limit=3, path="a") == messages.LogResult(transactions=[], more=True)
    assert asked == [messages.Log(limit=3, path="a")]


def test_text_that_is_not_utf8_goes_there_and_back(tmp_path: Path) -> None:
    odd = b"caf\xe9".decode("utf-8", "surrogateescape")

    def echo(params: Any) -> messages.ReadResult:
        return messages.ReadResult(
            path=params.path, content=odd, version="0" * 40, mode="100644", kind="file",
            encoding=None, bom=False, eol="none", size=4,
        )  # fmt: skip

    with scripted(tmp_path / "s", echo) as asked, Client(str(tmp_path / "s")) as client:
        result = client.read(odd)
    assert (result.path, result.content) == (odd, odd)
    assert asked == [messages.Read(path=odd)]


def test_a_refusal_is_raised_with_all_that_it_says(tmp_path: Path) -> None:
    refusal = messages.Error(code=1, name="stale", message="It changed.", data={"path": "a"})
    with (
        scripted(tmp_path / "s", lambda _: refusal),
        Client(str(tmp_path / "s")) as client,
        pytest.raises(EditdError, match="It changed") as raised,
    ):
        client.apply([messages.Delete(path="a")])
    assert (raised.value.code, raised.value.name, raised.value.data) == (1, "stale", {"path": "a"})


def test_after_a_refusal_the_client_goes_on(tmp_path: Path) -> None:
    answers: list[Any] = [messages.Error(code=12, name="file_missing", message="No."), messages.Empty()]
    with scripted(tmp_path / "s", lambda _: answers.pop(0)), Client(str(tmp_path / "s")) as client:
        with pytest.raises(EditdError):
            client.read("a")
        client.abort("c1")


def test_a_daemon_that_hangs_up_is_unreachable(tmp_path: Path) -> None:
    with (
        scripted(tmp_path / "s", lambda _: None),
        Client(str(tmp_path / "s"), reconnect=False) as client,
        pytest.raises(Unreachable, match="went away during `status`"),
    ):
        client.status()


def test_a_daemon_that_is_silent_is_unreachable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("editd_client.client.SILENCE_SECONDS_MAX", 0.05)
    over = threading.Event()

    def never(_: messages.Params) -> None:
        over.wait(5)

    with scripted(tmp_path / "s", never), Client(str(tmp_path / "s")) as client:
        with pytest.raises(Unreachable, match="has not answered `settle`"):
            client.settle(timeout=0.0)
        with pytest.raises(Unreachable):  # the answer may still come, and would be taken for another's
            client.status()
        over.set()


def test_where_no_daemon_listens_none_is_started_by_a_path(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="No daemon answers"):
        Client(str(tmp_path / "s"))


@pytest.mark.parametrize("answer", [{"surprise": 1}, messages.Empty(), b"\xff"])
def test_what_is_no_answer_of_the_protocol_is_told_as_such(tmp_path: Path, answer: object) -> None:
    with (
        scripted(tmp_path / "s", lambda _: answer),
        Client(str(tmp_path / "s")) as client,
        pytest.raises(Unreachable, match="`settle` is not understood") as raised,
    ):
        client.settle()
    assert "editctl stop" in raised.value.hint


@pytest.mark.parametrize("error", [KeyboardInterrupt, TimeoutError, LookupError])
@pytest.mark.parametrize("size", [1, 2_000_000])
def test_after_an_interrupted_request_the_next_has_its_own_answer(
    place: Workplace, error: type[BaseException], size: int
) -> None:
    place.write({"a": "a"})
    place.start().close()
    with Client(place.socket) as client, place.client() as once:
        for one in (client, once):
            one.settle()
            with interrupted(place, error):
                one.apply([write("large", "A" * size)])
        began = time.monotonic()
        assert client.read("a").content == "a"
        assert time.monotonic() - began < 20
        with pytest.raises(Unreachable, match="does not connect again"):
            once.read("a")


def test_a_handler_s_timeout_ends_a_wait_for_events(place: Workplace) -> None:
    with place.start() as client, client.subscribe() as events:
        with interrupted(place, TimeoutError):
            events.wait()
        client.apply([write("a", "a")])
        heard = events.wait(10)
        assert heard is not None
        assert heard.event == "transaction"


def test_a_client_that_is_in_use_in_another_thread_says_so(place: Workplace) -> None:
    with place.start() as client, place.client() as other:
        other.session_open("other")
        lease = other.lease_acquire(["a"], 60).lease
        waiting = threading.Thread(target=client.lease_acquire, args=(["a"], 1), kwargs={"wait": 30})
        client.session_open("one")
        waiting.start()
        wait_until(lambda: other.lease_list().waiting == 1, "it waits")
        with pytest.raises(RuntimeError, match="for each thread"):
            client.status()
        other.lease_release(lease)
        waiting.join(20)
        client.status()


def test_a_client_is_no_good_after_a_fork(place: Workplace) -> None:
    with place.start() as client:
        child = os.fork()
        if child == 0:
            try:
                client.status()
            except RuntimeError as error:
                os._exit("after the fork" in str(error))
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
        client.status()


def test_a_client_signs_with_editd_actor_then_the_login_name(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It signed as `unknown`."""
    with place.start() as client:

        def author(**more: str) -> str:
            client.apply([write(f"{len(place.files())}.txt", "x")], **more)  # type: ignore[arg-type]
            return client.log(limit=1).transactions[0].actor

        monkeypatch.delenv("EDITD_ACTOR", raising=False)
        assert author() == login_name()
        monkeypatch.setenv("EDITD_ACTOR", "ann")
        assert author() == "ann"
        with client.transaction() as changes:
            changes.write("t", "t")
        assert client.log(limit=1).transactions[0].actor == "ann"
        assert author(actor="bob") == "bob"
        client.session_open("s", actor="cid")
        assert author() == "cid"
        client.hello("dan")
        assert author() == "dan"


def test_a_refusal_can_be_caught_by_its_name(place: Workplace) -> None:
    with place.start() as client, pytest.raises(FileMissing, match="nothing"):
        client.read("nothing")
