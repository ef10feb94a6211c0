"""The secrets in the text of a command, each replaced by the name of its kind.

A command becomes the message of a transaction, which stays in the history and goes to other hosts. The rules
know the forms of common tokens, and values that a name calls a secret. They know no personal data and no
secret without a form, such as `mysql -pVALUE`. Each rule takes linear time.
"""

from __future__ import annotations

import re

_NAMES = r"(?:pass(?:word|wd|phrase)|secret|api[_-]?key|token|access[_-]?key|private[_-]?key|mysql_pwd)"
_SCHEME = r"(?:basic|bearer|token|digest)"
_VALUE = r"(?:\"[^\"$]{3,}\"|'[^']{3,}'|(?![\"'$(])[^\s\"',;&|]{3,})"
RULES: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "private-key",
        re.compile(
            r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)",
            re.DOTALL,
        ),
    ),
    ("aws-key", re.compile(r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}\b")),
    ("github-token", re.compile(r"\b(?:gh[pousr]_[0-9A-Za-z]{36,}|github_pat_\w{60,})")),
    ("gitlab-token", re.compile(r"\bglpat-[\w-]{20,}")),
    ("slack-token", re.compile(r"\bxox[abprs]-[\w-]{10,}")),
    ("api-key", re.compile(r"\bsk-(?:ant-|proj-|or-)?[\w-]{20,}")),
    ("google-key", re.compile(r"\bAIza[\w-]{35}")),
    ("jwt", re.compile(r"\beyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{5,}")),
    ("stripe-key", re.compile(r"\b[sr]k_(?:live|test)_[0-9A-Za-z]{16,}")),
    ("npm-token", re.compile(r"\bnpm_[0-9A-Za-z]{36}")),
    ("sendgrid-key", re.compile(r"\bSG\.[\w-]{16,}\.[\w-]{16,}")),
    ("url-password", re.compile(r"(?<=://)[^\s/:@]*:[^\s/@]+(?=@)")),
    (
        "credentials",
        re.compile(
            rf"(?i)(\bauthorization\s{{0,4}}[:=]\s{{0,4}}(?:{_SCHEME}\s{{1,4}})?)(?!{_SCHEME}\b)[\w.~+/:=-]{{6,}}"
        ),
    ),
    ("credentials", re.compile(r"(?i)(\bbearer\s+)[\w.~+/-]{16,}=*")),
    (
        "password",
        re.compile(r"((?:^|\s)(?:-u|--user)[ =]?[\"']?[^\s:\"'=]{1,80}:)(?!\d+(?:\s|$))[^\s\"']{3,}"),
    ),
    ("secret", re.compile(rf"(?i)(\b[\w-]{{0,20}}{_NAMES}[\"']?\s{{0,4}}[=:]\s{{0,4}}){_VALUE}")),
    ("secret", re.compile(rf"(?i)((?:^|\s)--?[\w-]{{0,20}}{_NAMES}\s{{1,4}})(?!-){_VALUE}")),
)


def redacted(text: str) -> str:
    """Return a text with each secret replaced by the name of its kind, in brackets."""
    for name, rule in RULES:
        text = rule.sub(rf"\1[{name}]" if rule.groups else f"[{name}]", text)
    return text
