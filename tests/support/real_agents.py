"""Real coding agents from npm, run against a scripted model: offline, in a home of the test's own.

    python tests/support/real_agents.py codex gemini opencode    # installs them, once, for the tests

The tests install nothing: they skip an agent that is not in the folder (EDITD_TEST_AGENTS, otherwise
~/.cache/editd-test-agents).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from support.scripted_model import Model
    from support.workplace import Workplace

PACKAGES = {
    "codex": "@openai/codex@0.169.0",
    "gemini": "@google/gemini-cli@0.61.0",
    "opencode": "opencode-ai@1.18.33",
}
FOLDER = Path(os.environ.get("EDITD_TEST_AGENTS") or Path.home() / ".cache" / "editd-test-agents")
RUN_SECONDS_MAX = 100.0
CODEX = """
model = "{model}"
model_provider = "scripted"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false

[model_providers.scripted]
name = "scripted"
base_url = "{url}/v1"
wire_api = "responses"

[features]
apps = false
plugins = false
remote_plugin = false
daemon_auto_start = false

[analytics]
enabled = false
"""


def program_of(agent: str) -> str:
    """Return the program of an installed agent; skip the test if it is not there."""
    import pytest  # late: the installation runs before any test's environment is there

    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    program = FOLDER / agent / "node_modules" / ".bin" / agent
    if not program.exists():
        pytest.skip(f"{agent} is not installed: `python tests/support/real_agents.py {agent}` does it")
    return str(program)


@dataclass
class RealAgent:
    """An agent in a workspace, with a home and settings of its own."""

    name: str
    place: Workplace
    model: Model
    program: str
    home: Path
    variables: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, place: Workplace, model: Model, *, knows_model: bool = True) -> RealAgent:
        """Write the agent's own settings, which keep it offline and lead it to the model.

        Codex gives the tools of MCP servers to models that it does not know, and a search to the others.
        """
        home = place.folder / f"home-{name}"
        agent = cls(name, place, model, program_of(name), home)
        url = model.url(name)
        if name == "codex":
            agent.write(
                ".codex/config.toml", CODEX.format(url=url, model="gpt-5.5" if knows_model else "scripted")
            )
        elif name == "gemini":
            agent.write(".gemini/settings.json", json.dumps({
                "privacy": {"usageStatisticsEnabled": False}, "general": {"enableAutoUpdate": False},
                "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
            }))  # fmt: skip
            agent.variables |= {"GOOGLE_GEMINI_BASE_URL": url, "GEMINI_API_KEY": "none"}
        else:
            provider = {
                "npm": "@ai-sdk/openai-compatible", "options": {"baseURL": f"{url}/v1", "apiKey": "none"},
                "models": {"scripted": {"name": "scripted", "tool_call": True}},
            }  # fmt: skip
            agent.write(".config/opencode/opencode.json", json.dumps({
                "provider": {"scripted": provider}, "model": "scripted/scripted",
                "small_model": "scripted/scripted", "autoupdate": False, "share": "disabled",
            }))  # fmt: skip
            for thing in ("MODELS_FETCH", "AUTOUPDATE", "LSP_DOWNLOAD"):
                agent.variables[f"OPENCODE_DISABLE_{thing}"] = "1"
        return agent

    @property
    def environment(self) -> dict[str, str]:
        return {
            **self.place.environment,
            "HOME": str(self.home),
            "XDG_CONFIG_HOME": str(self.home / ".config"),
            "EDITD_HOOK_SECONDS": "30",
            **self.variables,
        }

    def write(self, name: str, text: str) -> None:
        (self.home / name).parent.mkdir(parents=True, exist_ok=True)
        (self.home / name).write_text(text)

    def integrate(self, *options: str) -> None:
        """Run `editctl integrate`, as a user does."""
        words = ("integrate", self.name, "--yes", *(options or ("--no-mcp",)))
        done = self.place.editctl(*words, HOME=str(self.home), XDG_CONFIG_HOME=str(self.home / ".config"))
        assert done.returncode == 0, done.stderr

    def start(self) -> subprocess.Popen[str]:
        """Start one turn of the agent, without its prompts."""
        words = {
            "codex": ["exec", "--dangerously-bypass-hook-trust", "--skip-git-repo-check", "go"],
            "gemini": ["--yolo", "-m", "gemini-2.5-flash", "-p", "go"],
            "opencode": ["run", "go"],
        }[self.name]
        return subprocess.Popen(
            [self.program, *words], cwd=self.place.root, env=self.environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip

    def run(self) -> str:
        """Run one turn to its end, and return the agent's output."""
        return self.finish(self.start())

    def finish(self, process: subprocess.Popen[str]) -> str:
        try:
            output, _ = process.communicate(timeout=RUN_SECONDS_MAX)
        finally:
            process.kill()
        assert process.returncode == 0, output
        return output


def install(name: str, package: str) -> None:
    """Install a package of npm in a folder of this name, if this version of it is not there."""
    folder = FOLDER / name
    version = folder / "version"
    if version.exists() and version.read_text() == package:
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    words = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder), package]
    if subprocess.run(words, check=False).returncode:
        sys.exit(f"npm could not install {package}")
    version.write_text(package)


if __name__ == "__main__":
    for named in sys.argv[1:]:
        install(named, PACKAGES[named])
