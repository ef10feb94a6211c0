"""The secrets in a prompt: of 40 kinds at most two get through, and an ordinary prompt stays as it is.

All secrets are made up. Their names and forms are those of public sets of rules.
"""

from __future__ import annotations

import random
import string

from editd.wire.redaction import redacted_prompt
from support.ordinary_prompts import PROMPTS

DRAW = random.Random(7)
LOWER = string.ascii_lowercase + string.digits
UPPER = string.ascii_uppercase + string.digits
BASE32 = string.ascii_uppercase + "234567"
HEX = "0123456789abcdef"


def drawn(length: int, letters: str = string.ascii_letters + string.digits) -> str:
    """Return made-up characters, one of them a digit."""
    text = "".join(DRAW.choice(letters) for _ in range(length - 1))
    return text[: length // 2] + "7" + text[length // 2 :]


def pair(before: str, secret: str, after: str = "") -> tuple[str, str]:
    return before + secret + after, secret


def alone(secret: str) -> tuple[str, str]:
    return secret, secret


KEY_LINES = "\n".join(drawn(64) for _ in range(5))
KINDS = {
    "aws id": alone("AKIA" + drawn(16, BASE32)),
    "aws secret": pair("aws_secret_access_key = ", drawn(40)),
    "github": alone("ghp_" + drawn(36)),
    "github fine-grained": alone(f"github_pat_{drawn(22)}_{drawn(59)}"),
    "gitlab": alone("glpat-" + drawn(20)),
    "slack": alone(f"xoxb-{drawn(12, string.digits)}-{drawn(12, string.digits)}-{drawn(24)}"),
    "openai": alone("sk-proj-" + drawn(48)),
    "anthropic": alone(f"sk-ant-api03-{drawn(93)}AA"),
    "google": alone("AIza" + drawn(35)),
    "stripe": alone(f"sk_{'live'}_{drawn(24)}"),
    "jwt": alone(f"eyJ{drawn(20)}.eyJ{drawn(40)}.{drawn(43)}"),
    "pem": (
        f"-----BEGIN RSA PRIVATE KEY-----\n{KEY_LINES}\n-----END RSA PRIVATE KEY-----",
        KEY_LINES.split("\n")[1],
    ),
    "url": pair("postgres://admin:", drawn(14), "@db.example.com/app"),
    "password": pair("password: ", drawn(12)),
    "password in a sentence": pair("the password is ", drawn(12)),
    "variable": pair("DB_PASSWORD=", drawn(16)),
    "npm": alone("npm_" + drawn(36)),
    "bearer": pair("Authorization: Bearer ", drawn(40)),
    "sendgrid": alone(f"SG.{drawn(22)}.{drawn(43)}"),
    "hex": alone(drawn(64, HEX)),
    "databricks": alone("dapi" + drawn(32, HEX)),
    "grafana": alone(f"glsa_{drawn(32)}_{drawn(8, HEX)}"),
    "linear": alone("lin_api_" + drawn(40)),
    "new relic": alone("NRAK-" + drawn(27, UPPER)),
    "notion": alone("ntn_" + drawn(46)),
    "postman": alone(f"PMAK-{drawn(24, HEX)}-{drawn(34, HEX)}"),
    "pulumi": alone("pul-" + drawn(40, HEX)),
    "rubygems": alone("rubygems_" + drawn(48, HEX)),
    "sentry": alone("sntryu_" + drawn(64, HEX)),
    "square": alone("sq0atp-" + drawn(22)),
    "telegram": alone(f"{drawn(10, string.digits)}:AA{drawn(33)}"),
    "twilio": alone("SK" + drawn(32, HEX)),
    "slack webhook": pair("https://hooks.slack.com/services/", f"T{drawn(8)}/B{drawn(10)}/{drawn(24)}"),
    "planetscale": alone("pscale_pw_" + drawn(43)),
    "doppler": alone("dp.pt." + drawn(43)),
    "age": alone("AGE-SECRET-KEY-1" + drawn(58, BASE32)),
    "airtable": alone(f"pat{drawn(14)}.{drawn(64, HEX)}"),
    "terraform": alone(f"{drawn(14)}.atlasv1.{drawn(64)}"),
    "azure": alone(f"{drawn(3)}8Q~{drawn(34)}"),
    "hugging face": alone("hf_" + drawn(34)),
}


def test_of_40_kinds_of_secrets_in_a_prompt_at_most_two_get_through() -> None:
    assert len(KINDS) == 40
    missed = []
    for kind, (text, secret) in KINDS.items():
        shown, count = redacted_prompt(f"Please put this into config.py: {text} and run the tests")
        if secret in shown:
            missed.append(kind)
        else:
            assert count > 0
            assert shown.startswith("Please put this into config.py: ")
            assert shown.endswith(" and run the tests")
    assert len(missed) <= 2, missed


def test_none_of_100_ordinary_prompts_is_changed() -> None:
    assert len(set(PROMPTS)) == 100
    changed = [prompt for prompt in PROMPTS if redacted_prompt(prompt) != (prompt, 0)]
    assert changed == []


def test_the_number_of_secrets_is_counted() -> None:
    prompt = f"Use {KINDS['github'][0]} and the password is {KINDS['password'][1]}."
    assert redacted_prompt(prompt) == ("Use [github-token] and the password is [secret]", 2)
