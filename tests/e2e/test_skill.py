"""The skill's commands: each one that it shows is one that the parser takes, with options that there are."""
import re
import shlex
import subprocess

import pytest

from harness import ROOT, program

PAGE = ROOT / "skills" / "gpustow-queue" / "SKILL.md"


def commands(text):
    """The lines of its blocks, and what it says of gpustow between backquotes."""
    found = []
    for block in re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S):
        found += [line for line in block.splitlines() if line.strip()]
    found += [c for c in re.findall(r"`(gpustow [^`]+)`", text)]
    return found


FOUND = commands(PAGE.read_text())


def test_there_are_commands():
    assert len(FOUND) > 20 and all(c.startswith("gpustow ") for c in FOUND)


def test_it_has_a_name_and_a_description():
    head = re.match(r"---\nname: (\S+)\ndescription: (.+)\n---\n", PAGE.read_text())
    assert head and head[1] == PAGE.parent.name and 40 < len(head[2]) < 1024


@pytest.mark.parametrize("command", FOUND)
def test_the_parser_takes_it(world, command):
    """--help in front of the job's own words: everything up to there is parsed, and an unknown word or option is an error."""
    words = shlex.split(command)[1:]
    at = words.index("--") if "--" in words else len(words)
    done = subprocess.run([program(), *words[:at], "--help", *words[at:]], env=world.env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout.startswith("usage: gpustow "), done.stderr
    # It's the command that was meant, not a group's help.
    name = done.stdout.split("\n")[0].split("[")[0].split()[2:4]
    assert words[:2] == name, done.stdout


def test_help_does_not_hide_a_mistake(world):
    for words in (["job", "submit", "--vrma", "1G"], ["queue", "stats"], ["job", "logs", "1", "-n", "x"]):
        done = subprocess.run([program(), *words, "--help"], env=world.env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 2, words


def test_rules_that_it_must_have():
    text = PAGE.read_text()
    for rule in (r"Always state `--vram`", r"Exit code 2 of `gpustow job wait` means that it still runs", r"Never acknowledge alerts",
                 r"--key", r"--dry-run", r"--note", r"Ask before you cancel"):
        assert re.search(rule, text), rule
