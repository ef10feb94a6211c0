"""What people complain of in the hooks of agents; each names the public report. Through the real command."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from support.workplace import Workplace


def test_a_recorded_command_line_gives_a_secret_away(place: Workplace) -> None:
    """zerkerlabs/treeship#224, mrdushidush/claudette#117: a timeline kept each command as it was typed."""
    with place.start() as client:
        for command in ("AWS_SECRET_ACCESS_KEY=abcd1234efgh aws s3 ls", "deploy --token=abcd1234efgh"):
            began = client.exec_begin(command).exec
            place.write({"out.txt": command})
            client.exec_end(began, 0)
        assert "abcd1234efgh" not in place.editctl("log").stdout
        kept = [one.message for one in client.log().transactions if one.kind == "exec"]
    assert kept == [
        "deploy --token=[secret] (exit status 0)",
        "AWS_SECRET_ACCESS_KEY=[secret] aws s3 ls (exit status 0)",
    ]


def test_hooks_do_nothing_under_acp_and_nobody_says_so(place: Workplace) -> None:
    """QwenLM/qwen-code#3108, agentclientprotocol/claude-agent-acp#144: hooks are silent in an editor."""
    place.git("init", "-q")
    done = place.editctl("integrate", "gemini", "--yes")
    assert done.returncode == 0
    assert "gemini --acp" in done.stderr
