"""Shell commands that only read, and others: `editd-hook` and the plugins of agents must tell them apart."""

READING = [
    "ls -la", "cat a.txt | head -3", "rg 'a|b' src && wc -l x", "git status --short", "sed -n '1,$p' a.py",
    "sed -n 10p a.py", "cd src; pwd", "git log --oneline -3", "true", 'grep "a > (b)" c',
]  # fmt: skip
WRITING = [
    "make", "cat a > b", "cat $(make)", "ls & make", "ls; make", "ls\nmake", "git commit -m x", "git",
    "sed -i s/a/b/ x", "sed -n 'w b' a", "git diff --output=x", "cat a | tee b", "echo `make`",
    "rg --pre make a", "sed -n -i 1p a", "cat <(make)", "python x.py", "find . -delete", "xargs rm",
    "git -c alias.log=!make log", """echo "it's" > x 'y'""", r"echo \' > x \'", 'echo "$(make)"',
]  # fmt: skip
