"""The secrets in the text of a command, each replaced by the name of its kind.

A command becomes the message of a transaction, which stays in the history and goes to other hosts. The rules
know the forms of common tokens, values that a name calls a secret, and the password options of common
programs, such as `mysql -pVALUE`. They know no personal data and no other secret without a form. Each rule
takes linear time.
"""

from __future__ import annotations

import re

_NAMES = (
    r"(?:pass(?:word|wd|phrase|code)|secret(?:[_-](?:access[_-])?key)?|api[_-]?key|token|access[_-]?key"
    r"|private[_-]?key|_pwd|(?<![a-z])pass)"
)
_NAME = rf"[\w-]{{0,80}}{_NAMES}"
_CLOSED = r"[\\\"'\])}]{0,3}"  # behind a name, as in `${env:NAME}` and `environ["NAME"]`
_BLANK = r"(?:[ \t`]|\\\n){1,40}"  # between two words of one command
_SETTERS = (
    r"export|declare|typeset|setx?|setenv|set-env|set-environment|let-env|sv|si"
    r"|(?:set|new)-(?:item|itemproperty|variable|content)"
)  # commands that take a variable and its value as two words
_PREFIX = r"[\"']?(?:env:\\?|e:)?"  # before a variable, in PowerShell and elvish
_SCHEME = r"(?:basic|bearer|token|digest)"
_GAP = r"(?:\\?\s){1,4}"  # between two words of a header, also behind a backslash
_REGISTRIES = "docker|podman|helm|oc|az|skopeo|buildah"
_REPLACED = r"\[(?:secret|password|token|[a-z]+-(?:key|token))\]"
_NESTED = r"'\"'\"'[^'\n]{3,}'\"'\"'|\\\"[^\"\\]{3,}\\\""  # in quotes of a text that is in quotes itself
_VALUE = rf"(?:{_NESTED}|\"[^\"$]{{3,}}\"|'[^']{{3,}}'|(?![\"'$(<]|{_REPLACED})[^\s\"',;&|]{{3,}})"


def _option(programs: str, option: str) -> re.Pattern[str]:
    """Return the rule of a program's option with a password: all of its words are in one command."""
    return re.compile(rf"(\b(?:{programs})\b[^|;&\n]{{0,200}}?\s{option}){_VALUE}")


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
    ("huggingface-token", re.compile(r"\bhf_[0-9A-Za-z]{30,}")),
    ("pypi-token", re.compile(r"\bpypi-AgE[\w-]{20,}")),
    ("docker-token", re.compile(r"\bdckr_[a-z]{3}_[\w-]{20,}")),
    ("google-token", re.compile(r"\bya29\.[\w-]{20,}")),
    ("vault-token", re.compile(r"\bhv[sbr]\.[\w-]{20,}")),
    ("shop-token", re.compile(r"\bshp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}")),
    ("digitalocean-token", re.compile(r"\bdo[opr]_v1_[0-9a-f]{64}")),
    (
        "aws-key",
        re.compile(r"(\[aws-key\][\"']?\s{1,4}[\"']?)(?![0-9a-f]{40}\b)[0-9A-Za-z/+]{40}(?![0-9A-Za-z/+])"),
    ),
    ("npm-token", re.compile(r"\bnpm_[0-9A-Za-z]{36}")),
    ("sendgrid-key", re.compile(r"\bSG\.[\w-]{16,}\.[\w-]{16,}")),
    ("url-password", re.compile(r"(?<=://)[^\s/:@]*:[^\s/@]+(?=@)")),
    (
        "credentials",
        re.compile(
            rf"(?i)(\bauthorization\s{{0,4}}[:=](?:\\?\s){{0,4}}(?:{_SCHEME}{_GAP})?)"
            rf"(?!{_SCHEME}\b)[\w.~+/:=-]{{6,}}"
        ),
    ),
    ("credentials", re.compile(r"(?i)(\bbearer\s+)[\w.~+/-]{16,}=*")),
    (
        "password",
        re.compile(r"((?:^|\s)(?:-u|--user)[ =]?[\"']?[^\s:\"'=]{1,80}:)(?!\d+(?:\s|$))[^\s\"']{3,}"),
    ),
    ("cookie", re.compile(r"(?i)(\bcookie:\s{0,4})(?![\[\s])[^\"'\n]{3,}")),
    ("cookie", re.compile(r"((?:^|\s)(?:-b|--cookie)[ =]?[\"']?[\w.-]{1,40}=)[^\s\"']{3,}")),
    ("password", _option("mysql|mysqldump|mysqladmin|mariadb|mariadb-dump|7z|7za", "-p")),
    ("password", _option("sshpass", r"-p\s?")),
    (
        "password",
        _option("(?:docker|podman|helm|oc|az|skopeo|buildah)[^|;&\n]{0,80}\\slogin|twine", r"-p[ =]"),
    ),
    ("password", _option("redis-cli", r"-a\s")),
    ("password", _option("zip|unzip", r"-P\s?")),
    ("password", _option("openssl", r"-(?:k|K)\s")),
    ("password", _option("openssl", r"-pass(?:in|out)?\spass:")),
    ("password", _option("smbclient|rpcclient|net", r"-U\s?[^\s%]{1,80}%")),
    ("password", re.compile(rf"(\bvault\s{{1,4}}login\s{{1,4}})(?!-){_VALUE}")),
    ("token", re.compile(rf"(\s--oauth2-bearer[ =]){_VALUE}")),
    ("secret", re.compile(rf"(?i)(\s--[\w-]{{0,20}}{_NAMES}\s{{1,4}}<<<\s{{0,4}}){_VALUE}")),
    (
        "secret",
        re.compile(
            rf"(\b(?:echo|printf)\s{{1,4}}(?:-n\s{{1,4}})?){_VALUE}"
            r"(?=\s{0,4}\|[^|\n]{0,200}\s--(?:password-stdin|with-token|token-stdin))"
        ),
    ),
    (
        "secret",
        re.compile(
            rf"(?i)(\b(?:{_SETTERS})(?:{_BLANK}-[\w-]{{1,40}}){{0,6}}{_BLANK}{_PREFIX}{_NAME}[\"']?{_BLANK}"
            rf"(?:--?(?:value|body|b)[ =]{{1,4}})?)(?![-=:]){_VALUE}"
        ),
    ),
    (
        "secret",
        re.compile(
            rf"(?i)(\b(?:setenvironmentvariable|putenv|setenv)\(\s{{0,4}}[\"']{_NAME}[\"']\s{{0,4}},\s{{0,4}})"
            rf"{_VALUE}"
        ),
    ),
    (
        "secret",
        re.compile(
            rf"(?i)(\bconvertto-securestring(?:{_BLANK}-(?:string|asplaintext|force)){{0,3}}{_BLANK})(?!-){_VALUE}"
        ),
    ),
    ("secret", re.compile(rf"(?i)(\baws_secret_access_key\s{{1,4}}){_VALUE}")),
    ("secret", re.compile(rf"(?i)({_NAMES}{_CLOSED}\s{{0,20}}[+:?]{{0,2}}=\s{{0,20}})(?![=~]){_VALUE}")),
    ("secret", re.compile(rf"(?i)((?!\bpass\b){_NAMES}{_CLOSED}\s{{0,20}}:\s{{0,20}})(?![=:]){_VALUE}")),
    ("secret", re.compile(rf"(?i)([{{,]\s{{0,4}}[\"']?pass[\"']?\s{{0,4}}:\s{{0,4}}){_VALUE}")),
    ("secret", re.compile(rf"(?i)((?:^|\s)--?{_NAME}\s{{1,4}})(?!-){_VALUE}")),
)


def redact(text: str) -> str:
    """Return a text with each secret replaced by the name of its kind, in brackets."""
    for name, rule in RULES:
        text = rule.sub(rf"\1[{name}]" if rule.groups else f"[{name}]", text)
    return text
