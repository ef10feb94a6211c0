"""The benchmark's short form, as anybody runs it: its bounds here are for a machine that does much else."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from workplace import TOP

if TYPE_CHECKING:
    from pathlib import Path

RATIO_MAX = 10.0  # 1.5 on a machine that has nothing else to do
SHARE_MIN = 0.1  # 0.5


def test_the_benchmark_writes_its_table_and_no_ratio_is_of_another_order(tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    shutil.copy(TOP / "docs" / "benchmarks.md", page)
    bench = [sys.executable, str(TOP / "tests" / "bench" / "bench.py"), "--short", "--write", str(page)]
    said = subprocess.run(bench, check=True, capture_output=True, text=True).stdout
    assert said.strip() in page.read_text()
    rows = re.findall(r"^\| ([\d,]+) \|.*?\*\*([\d.]+) ×\*\*.*\*\*([\d.]+) ×\*\* \|$", said, re.MULTILINE)
    assert [files for files, _, _ in rows] == ["100", "1,000"]
    for _, ratio, share in rows:
        assert float(ratio) < RATIO_MAX
        assert float(share) > SHARE_MIN
