"""The documentation's examples: each ```console block of docs/*.md and the README is typed as it stands, in a scratch directory
with simulated cards. A page's blocks follow one another, as a reader would do it. Every command must end with 0."""
import re
import subprocess

import pytest

from harness import DEADLINE, ROOT, program

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def commands(text):
    """Those of all blocks: what follows a "$ ", with its "> " lines."""
    found = []
    for block in re.findall(r"^```console\n(.*?)^```", text, re.M | re.S):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append(line[2:])
            elif line.startswith("> ") or line == ">":
                assert found, "a continuation without a command"
                found[-1] += "\n" + line[2:]
    return found


CASES = [(page, commands(page.read_text())) for page in PAGES]


def test_there_are_examples():
    assert sum(len(found) for _, found in CASES) >= 6
    assert commands("```console\n$ cat <<'E'\n> a\n> E\nsaid\n$ b\n```\n```\n$ c\n```\n") == ["cat <<'E'\na\nE", "b"]


@pytest.mark.parametrize("page,found", [c for c in CASES if c[1]], ids=lambda x: x.name if hasattr(x, "name") else "")
def test_the_page_runs_as_it_stands(world, page, found):
    # A job's directory would lie in the real home: an agent doesn't ask $HOME.
    settings = world.dir / "queue.yml"
    settings.write_text(f"queue:\n  job_root: {world.dir}/jobs\n")
    world.env["GPUSTOW_QUEUE_CONFIG"] = str(settings)
    for command in found:
        done = subprocess.run(["bash", "-c", command], cwd=world.dir, env={**world.env, "GPUSTOW_SIM": "4"},
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=2 * DEADLINE)
        assert done.returncode == 0, f"{page.name}: $ {command}\nexit {done.returncode}\n{done.stdout}\n{done.stderr}"


def options_of(*words):
    """What --help lists."""
    text = subprocess.run([program(), *words, "--help"], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"(?<![\w-])(--[a-z][a-z-]+)", text))


def test_every_option_that_a_page_speaks_of_is_there():
    known = options_of("run") | options_of("run", "retry") | options_of("run", "status") | options_of("simjob")
    for page in (ROOT / "docs" / "run.md", ROOT / "README.md"):
        said = set(re.findall(r"`(?:gpustow run )?(--[a-z][a-z-]+)", page.read_text()))
        assert said and said <= known, f"{page.name}: {said - known}"
