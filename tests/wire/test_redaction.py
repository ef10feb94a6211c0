"""The secrets in a command: each is replaced, and the rest of the command is as it was. All are made up."""

from __future__ import annotations

import shlex

import pytest

from editd.wire.redaction import redact

A64 = "aB3dE5gH7jK9mN1pQ3rS5tU7vW9xY1zA3bC5dE7fG9hJ1kL3mN5pQ7rS9tU1vW3x"

SECRETS = [
    ("aws configure set x AKIA" + "ABCDEFGH234567AB", "AKIA" + "ABCDEFGH234567AB"),
    (f"AWS_SECRET_ACCESS_KEY={A64[:40]} make", A64[:40]),
    (f"gh auth login --with-token ghp_{A64[:36]}", f"ghp_{A64[:36]}"),
    (f"curl -H 'PRIVATE-TOKEN: glpat-{A64[:20]}' x", f"glpat-{A64[:20]}"),
    (f"echo xoxb-123456789012-{A64[:24]}", f"xoxb-123456789012-{A64[:24]}"),
    (f"OPENAI=sk-proj-{A64[:48]} run", f"sk-proj-{A64[:48]}"),
    (f"echo AIza{A64[:35]}", f"AIza{A64[:35]}"),
    (f"echo sk_{'live'}_{A64[:24]}", A64[:24]),
    (f"echo eyJ{A64[:20]}.eyJ{A64[:40]}.{A64[:43]}", A64[:43]),
    (f"echo '-----BEGIN RSA PRIVATE KEY-----\n{A64}\n-----END RSA PRIVATE KEY-----' > k", A64),
    ("psql postgres://admin:hunter2@db.example.org/app", "hunter2"),
    ("git clone https://:ghtok99@example.org/x", "ghtok99"),
    ("PGPASSWORD=hunter2 psql", "hunter2"),
    ("MYSQL_PWD=hunter mysql", "hunter"),
    ("mysql --password hunter2 app", "hunter2"),
    ("mysql --password='hun ter' app", "hun ter"),
    ("tool --api-key=abcdef", "abcdef"),
    (f"npm_config_x=npm_{A64[:36]} npm publish", f"npm_{A64[:36]}"),
    (f"curl -H 'Authorization: Bearer {A64[:40]}' x", A64[:40]),
    ("curl -H 'Authorization: Basic YWRtaW46aHVudGVy' x", "YWRtaW46aHVudGVy"),
    ("curl -u admin:hunter2 https://example.org", "hunter2"),
    (f"echo SG.{A64[:22]}.{A64[:43]}", A64[:43]),
    ("DB_PASS='hunter two' make", "hunter two"),
    ("tool --pass hunter2", "hunter2"),
    ("heroku config:set SECRET_KEY=hunter2", "hunter2"),
    (f"aws configure set aws_secret_access_key {A64[:40]}", A64[:40]),
    (f"aws-login AKIAABCDEFGH234567AB {A64[:38]}/+", A64[:38]),
    ("set PGPASSWORD hunter2", "hunter2"),
    ("mysql -u root -phunter2 app", "hunter2"),
    ("sshpass -p hunter2 ssh host", "hunter2"),
    ("docker login -u ann -p hunter2 example.org", "hunter2"),
    ("echo hunter2 | docker login -u ann --password-stdin", "hunter2"),
    ("printf 'hunter2' | gh auth login --with-token", "hunter2"),
    ("gh auth login --with-token <<< hunter2", "hunter2"),
    ("twine upload -u ann -p hunter2 dist/*", "hunter2"),
    ("redis-cli -h host -a hunter2 ping", "hunter2"),
    ("unzip -P hunter2 a.zip", "hunter2"),
    ("7z x -phunter2 a.7z", "hunter2"),
    ("openssl enc -aes-256-cbc -k hunter2", "hunter2"),
    ("openssl rsa -passin pass:hunter2 -in k", "hunter2"),
    ("smbclient -U ann%hunter2 //host/share", "hunter2"),
    ("vault login hunter2", "hunter2"),
    ("curl --oauth2-bearer hunter2 x", "hunter2"),
    ("curl -H 'Cookie: sid=hunter2; b=c' x", "hunter2"),
    ("curl -b sid=hunter2 x", "hunter2"),
    ("curl -H Authorization:\\ Bearer\\ hunter2abc x", "hunter2abc"),
    (f"echo hf_{A64[:34]}", A64[:34]),
    (f"echo pypi-AgEIcHlwaS5vcmc{A64[:40]}", A64[:40]),
    (f"echo dckr_pat_{A64[:27]}", A64[:27]),
    (f"echo ya29.{A64[:40]}", A64[:40]),
    (f"echo hvs.{A64[:24]}", A64[:24]),
    ("set -x PASS hunter2; make", "hunter2"),
    ("set -gx DB_PASS 'hun ter'", "hun ter"),
    ("set --global --export API_TOKEN hunter2", "hunter2"),
    ("set -Ux      GITHUB_TOKEN      hunter2", "hunter2"),
    ("set -x PASS \\\n  hunter2", "hunter2"),
    ("setenv PASS hunter2", "hunter2"),
    ("setx DB_PASSWORD hunter2 /M", "hunter2"),
    ("set pass = hunter2", "hunter2"),
    ("export PASS hunter2", "hunter2"),
    ("export PASS=hunter2", "hunter2"),
    ("export -p PASS+=hunter2", "hunter2"),
    ("declare -x DB_PWD=hunter2", "hunter2"),
    ('$env:PASS = "hunter2"', "hunter2"),
    ("$env:DB_PASSWORD='hunter2'; make", "hunter2"),
    ('${env:DB_PASSWORD} = "hunter2"', "hunter2"),
    ("Set-Item -Path Env:PASS -Value hunter2", "hunter2"),
    ("si Env:\\DB_TOKEN hunter2", "hunter2"),
    ("New-Variable -Name PASS -Value hunter2", "hunter2"),
    ('[Environment]::SetEnvironmentVariable("PASS", "hunter2", "User")', "hunter2"),
    ("$password = ConvertTo-SecureString 'hunter2' -AsPlainText -Force", "hunter2"),
    ("$x = ConvertTo-SecureString -AsPlainText -Force -String hunter2", "hunter2"),
    ('$env.PASS = "hunter2"', "hunter2"),
    ("let-env PASS = hunter2", "hunter2"),
    ("load-env {PASS: hunter2}", "hunter2"),
    ("set-env DB_PASS hunter2", "hunter2"),
    ("set E:PASS = hunter2", "hunter2"),
    ("tmux set-environment -g PASS hunter2", "hunter2"),
    ("gh secret set PASS --body hunter2", "hunter2"),
    ('python -c \'import os; os.environ["PASS"] = "hunter2"\'', "hunter2"),
    ('echo \'{"pass": "hunter2"}\' > j', "hunter2"),
    ('curl -d "{\\"password\\":\\"hunter2\\"}" x', "hunter2"),
    (shlex.join(["fish", "-c", "set -x PASS 'hun ter'; make"]), "hun ter"),
    (shlex.join(["sh", "-c", "DB_PASS='hun ter' make"]), "hun ter"),
    ("THE_LONG_NAME_OF_AN_APPLICATION_DATABASE_PASSWORD=hunter2 make", "hunter2"),
]
PLAIN = [
    "pytest -q tests/test_token.py -k 'password or token'",
    "git show 9f2e8a1b3c4d5e6f708192a3b4c5d6e7f8091a2b",
    "docker run -u 1000:1000 image",
    "FOO_TOKEN=$TOKEN make",
    "FOO_TOKEN=$(cat token) make",
    "sed -i 's/secret/public/' a.py",
    "echo 550e8400-e29b-41d4-a716-446655440000",
    "curl https://example.org:8080/x@y",
    "grep -rn api_key src",
    "docker run -p 8080:80 image",
    "mysql -u root -p app < dump.sql",
    "mysql -h host -P 3306 app",
    "git checkout -b feature",
    "pytest --bypass=cache compass=north",
    "unzip -p a.zip member",
    "vault login -method=oidc",
    "echo done | tee log",
    "redis-cli -h host ping",
    "openssl version",
    "set -euo pipefail",
    "git commit -m 'Pass: all of it'",
    "set -q TOKEN; or make",
    "set -e DB_PASS\nmake test",
    "export DB_PASS && make",
    "set -x DB_PASS (cat file)",
    "set -gx PATH /opt/bin $PATH",
    "$env:DB_PASS = $other",
    "set -x COMPASS north",
    "cd $OLDPWD; PWD=/tmp make",
]


HEX64 = "0123456789abcdef" * 4
PREFIXES = {
    "github-token": [
        *(f"gh{kind}_{A64[:36]}" for kind in "pousr"), f"github_pat_{A64[:22]}_{A64[:59]}"
    ],
    "aws-key": [f"{kind}ABCDEFGH234567AB" for kind in ("AKIA", "ASIA", "ABIA", "ACCA")],
    "slack-token": [f"xox{kind}-123456789012-{A64[:24]}" for kind in "abprs"],
    "api-key": [f"sk-{kind}{A64[:40]}" for kind in ("", "ant-", "proj-", "or-")],
    "stripe-key": [f"{kind}_{mode}_{A64[:24]}" for kind in ("sk", "rk") for mode in ("live", "test")],
    "vault-token": [f"hv{kind}.{A64[:24]}" for kind in "sbr"],
    "shop-token": [f"shp{kind}_{HEX64[:32]}" for kind in ("at", "ca", "pa", "ss")],
    "digitalocean-token": [f"do{kind}_v1_{HEX64}" for kind in "opr"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "token"), [(kind, token) for kind, tokens in PREFIXES.items() for token in tokens]
)
def test_each_prefix_of_a_kind_of_token_is_known(kind: str, token: str) -> None:
    assert redact(f"echo {token} > file") == f"echo [{kind}] > file"


@pytest.mark.parametrize(("command", "secret"), SECRETS)
def test_a_secret_is_replaced_by_the_name_of_its_kind(command: str, secret: str) -> None:
    shown = redact(command)
    assert secret not in shown
    assert "[" in shown
    assert redact(shown) == shown, "once is enough"


@pytest.mark.parametrize("command", PLAIN)
def test_a_command_without_a_secret_stays_as_it_is(command: str) -> None:
    assert redact(command) == command
