"""The secrets in the text of a command or a prompt, each replaced by the name of its kind.

A command becomes the message of a transaction, which stays in the history and goes to other hosts. The rules
know the forms of common tokens, values that a name calls a secret, and the password options of common
programs, such as `mysql -pVALUE`. They know no personal data and no other secret without a form. Each rule
takes linear time.

A prompt is prose, where a word such as *token* is rarely followed by one. So a rule that finds a secret by
the text before it replaces only a value that looks like a secret there.
"""

from __future__ import annotations

import re
from functools import partial

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
    ("databricks-token", re.compile(r"\bdapi[0-9a-f]{32}")),
    ("grafana-token", re.compile(r"\bgl(?:sa_[0-9A-Za-z]{32}_[0-9a-fA-F]{8}|c_[\w+/]{32,}={0,2})")),
    ("linear-key", re.compile(r"\blin_api_[0-9A-Za-z]{40}")),
    ("newrelic-key", re.compile(r"\bNRAK-[0-9A-Z]{27}")),
    ("notion-token", re.compile(r"\bntn_[0-9A-Za-z]{40,}")),
    ("postman-key", re.compile(r"\bPMAK-[0-9a-f]{24}-[0-9a-f]{34}")),
    ("pulumi-token", re.compile(r"\bpul-[0-9a-f]{40}")),
    ("rubygems-key", re.compile(r"\brubygems_[0-9a-f]{48}")),
    ("sentry-token", re.compile(r"\bsntry[su]_[\w+/=-]{40,}")),
    ("square-token", re.compile(r"\b(?:sq0[a-z]{3}-[\w-]{22,}|EAAA[\w-]{60})")),
    ("telegram-token", re.compile(r"\b\d{8,10}:AA[\w-]{33}")),
    ("twilio-key", re.compile(r"\bSK[0-9a-f]{32}")),
    ("discord-token", re.compile(r"\b[MNO][\w-]{23,27}\.[\w-]{6}\.[\w-]{27,38}")),
    ("webhook-key", re.compile(r"(\bhooks\.slack\.com/(?:services|workflows)/)[\w/]{20,}")),
    ("webhook-key", re.compile(r"(\bdiscord(?:app)?\.com/api/webhooks/\d{1,24}/)[\w-]{40,}")),
    ("planetscale-token", re.compile(r"\bpscale_(?:pw|tkn|oauth)_[\w.=-]{32,}")),
    ("doppler-token", re.compile(r"\bdp\.(?:pt|st|ct|sa)\.[0-9A-Za-z._-]{40,}")),
    ("age-key", re.compile(r"\bAGE-SECRET-KEY-1[0-9A-Z]{58}")),
    ("shippo-token", re.compile(r"\bshippo_(?:live|test)_[0-9a-fA-F]{40}")),
    ("dynatrace-token", re.compile(r"\bdt0[a-z]\d\d\.[0-9A-Z]{24}\.[0-9A-Z]{64}")),
    ("airtable-token", re.compile(r"\bpat[0-9A-Za-z]{14}\.[0-9a-f]{64}")),
    ("atlassian-token", re.compile(r"\bATATT3[\w=-]{60,}")),
    ("supabase-token", re.compile(r"\bsb(?:p_[0-9a-f]{40}|_secret_[\w-]{20,})")),
    ("api-key", re.compile(r"\b(?:gsk|xai|pplx|r8)[-_][0-9A-Za-z]{32,}")),
    ("terraform-token", re.compile(r"\b[0-9A-Za-z]{14}\.atlasv1\.[\w=-]{60,}")),
    ("azure-key", re.compile(r"(?<![\w~.-])[\w~.-]{3}\dQ~[\w~.-]{31,34}(?![\w~.-])")),
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


PROSE: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("secret", re.compile(rf"(?i)({_NAMES}\s{{1,4}}(?:is|was)\s{{1,4}}){_VALUE}")),
)  # of prompts alone
_SECRET_CHARACTERS_MIN = 6
_LONG_CHARACTERS = 16  # a shorter value without a digit is a word
_CODE = re.compile(r"[(\[{<]|://|^[./~$%]|\.[a-z]{1,4}$")  # an expression, an address, a path
_IDENTIFIER = re.compile(r"[A-Z]?[a-z]{2,}(?:[-_.]?[A-Z]?[a-z]{2,})*|[A-Z_]+")


def redact(text: str) -> str:
    """Return a text with each secret replaced by the name of its kind, in brackets."""
    for name, rule in RULES:
        text = rule.sub(rf"\1[{name}]" if rule.groups else f"[{name}]", text)
    return text


def redacted_prompt(text: str) -> tuple[str, int]:
    """Return a prompt with each secret replaced by the name of its kind, and the number of these."""
    count = 0

    def replaced(name: str, match: re.Match[str]) -> str:
        nonlocal count
        before = match[1] if match.re.groups else ""
        if before and not _is_secret_like(match[0][len(before) :]):
            return match[0]
        count += 1
        return f"{before}[{name}]"

    for name, rule in (*RULES, *PROSE):
        text = rule.sub(partial(replaced, name), text)
    return text, count


def _is_secret_like(value: str) -> bool:
    """Return whether a value behind a word such as *password* is a secret, and not the next word."""
    text = value.strip("\\\"'`.,;:!?)]}")
    if len(text) < _SECRET_CHARACTERS_MIN or _CODE.search(text) is not None:
        return False
    if any(character.isdigit() for character in text):
        return True
    is_word = text.islower() or _IDENTIFIER.fullmatch(text) is not None or len(text.split()) > 1
    return len(text) >= _LONG_CHARACTERS and not is_word
