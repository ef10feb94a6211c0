"""The programs of hooks by their use of arguments: some take files, and others run programs.

A hook with a file name as an argument is refused if its program is in no list, unless the argument follows
`--`. So a program that is missing here is refused too early, and never too late.
"""

from __future__ import annotations

import re

from msgspec import Struct

FILE_PROGRAMS = frozenset(
    """
    alejandra ameba astyle autoflake autopep8 bandit bashate beautysh biome black blue buf buildifier cat
    clang-format clang-tidy cljfmt cmake-format cmake-lint cmp cmp-fmt codespell cppcheck cppclean csslint
    curlylint cut diff djlint docformatter dockerfmt dos2unix dprint echo egrep elm-format erb-lint eslint
    eslint_d expand fgrep file fish_indent fixjson flake8 fmt fold fourmolu gersemi gofmt gofumpt goimports
    golangci-lint golines google-java-format grep hadolint head hlint htmlhint iconv isort jq jshint
    jsonlint ktfmt ktlint latexindent luacheck luac markdownlint markdownlint-cli2 md5sum mdformat mypy
    nixfmt nixpkgs-fmt oxlint ocamlformat od ormolu perltidy pg_format phpcbf phpcs php-cs-fixer phpstan
    pint prettier prettierd printf proselint pycodestyle pydocstyle pyflakes pyink pylint pyright pyupgrade
    raco-fmt reorder-python-imports rome rubocop ruff rufo rustfmt scalafmt selene sha1sum sha256sum
    shellcheck shfmt sort sqlfluff sqlfmt standard standardrb stat staticcheck stylelint stylish-haskell
    stylua swift-format swiftformat swiftlint tail taplo terrafmt test tflint tidy tombi touch tsc typos
    uncrustify unexpand uniq unix2dos usort vale vulture wc xmllint xo xxd yamlfmt yamllint yapf yq
    """.split()  # noqa: SIM905  # a name is easier to find in words
)
"""Programs that read or format the files of their arguments, and run none of their names."""

FILE_VERBS = frozenset((
    ("cabal-fmt", "-i"), ("dart", "format"), ("deno", "fmt"), ("deno", "lint"), ("mix", "format"),
    ("nickel", "format"), ("terraform", "fmt"), ("tofu", "fmt"), ("typst", "fmt"), ("zig", "fmt"),
))  # fmt: skip
"""Programs that do so with this first argument, and may run a file with other first arguments."""

RUNNERS = frozenset(
    """
    Rscript R guile ipython java julia octave osascript pwsh tclsh ts-node tsx wish
    at batch busybox chroot crontab deno doas docker ed emacs entr env eval ex exec expect find firejail flock
    gdb git gmake go hg kubectl lldb ltrace make nice ninja nohup npm npx nsenter nvim parallel pkexec pnpm
    podman rsh runuser screen script setpriv setsid socat ssh start-stop-daemon stdbuf strace su sudo
    systemd-run time timeout tmux unshare uv uvx vi view vim watch xargs yarn
    """.split()  # noqa: SIM905
)
"""Programs that run their arguments, also behind `--`. A file name is never an argument of theirs."""


LOADERS = re.compile(
    r"--?[a-z-]*(plugin|config|rcfile|require|import|load|rules-?dir|program|settings)[a-z-]*"
)
"""Options of any program whose value is code, or a configuration that may name code."""
LOADER_PAIRS = frozenset((("eslint", "-c"), ("rubocop", "-r"), ("jq", "-L"), ("jq", "-f")))
"""Short options of programs that mean the same."""


class Interpreter(Struct, frozen=True):
    """The arguments of an interpreter: it runs the text behind a flag, otherwise the first file."""

    program: str  # expressions
    text: str  # flags before a text that it runs, or before the file of one
    plain: str  # options without a value
    check: str = "(?!)"  # options that make it run nothing
    ends_options: bool = False  # all arguments behind the text are the text's own

    def is_program(self, name: str) -> bool:
        """Return whether it has this name."""
        return re.fullmatch(self.program, name) is not None

    def is_data(self, before: list[str]) -> bool:
        """Return whether an argument behind these is data of a text or a script."""
        begin = next((at for at, one in enumerate(before) if not self._is_plain(one)), len(before))
        if begin == len(before):
            return any(re.fullmatch(self.check, one) for one in before)
        if re.fullmatch(self.text, before[begin]):
            begin += 1
            if begin == len(before):
                return False
        if before[begin].startswith(("-", "+")):
            return False
        if begin and before[begin - 1] == "-m" and before[begin] not in MODULES:
            return False
        rest = before[begin + 1 :]
        return self.ends_options or not rest or rest[-1] == "--" or not rest[-1].startswith("-")

    def _is_plain(self, argument: str) -> bool:
        return re.fullmatch(f"{self.plain}|{self.check}", argument) is not None


MODULES = frozenset(
    """
    autoflake autopep8 black compileall docformatter flake8 isort json.tool mypy py_compile pycodestyle
    pyflakes pylint pyupgrade ruff yapf
    """.split()  # noqa: SIM905
)
"""Modules of Python that take files, as the programs do."""

INTERPRETERS = (
    Interpreter(
        r"(ba|da|z|k|mk|a|fi|c|tc)?sh|nu|xonsh",
        r"-[A-Za-z]*c|--command",
        r"-[efux]+",
        r"-n",
        ends_options=True,
    ),
    Interpreter(r"(python|pypy)[\d.]*", r"-[IEsSBbuOqv]*c|-m", r"-[IEsSBbuOqv]+", ends_options=True),
    Interpreter(r"perl[\d.]*", r"-[anplwi]*[eE]", r"-[anplwi]+", r"-w?c"),
    Interpreter(r"ruby[\d.]*", r"-[anplwi]*e", r"-[anplwi]+", r"-w?c"),
    Interpreter(r"lua[\d.]*|luajit", r"(?!)", r"-[EvW]"),
    Interpreter(r"node[\d.]*|nodejs|bun", r"-[ep]|--eval|--print", r"--no-warnings", r"--check|-c"),
    Interpreter(r"php[\d.]*", r"-r", r"-n", r"-l"),
    Interpreter(r"sed", r"-[nErsz]*[ef]|--expression|--file", r"-[nErszi]+|--quiet|--in-place"),
    Interpreter(r"[gmn]?awk", r"-f|--file", r"-F.+"),
)
