"""
Sums the cases of meson's log (TAP inside) and of pytest's JUnit file, and prints the closing line of a test run.
--failed LOG instead prints what the failed cases of meson's log said: they say it on stdout, which meson keeps to itself.
"""
import json
import re
import sys
import xml.etree.ElementTree as ET


def count_meson(path):
    passed = failed = skipped = 0
    with open(path) as log:
        for line in log:
            test = json.loads(line)
            cases = re.findall(r"^(not ok|ok)\b(.*)$", test.get("stdout") or "", re.M)
            if test["result"] in ("SKIP",):
                skipped += 1
            elif not cases:
                passed += test["result"] in ("OK", "EXPECTEDFAIL")
                failed += test["result"] not in ("OK", "EXPECTEDFAIL")
            else:
                skips = sum("# SKIP" in rest.upper() for _, rest in cases)
                bad = sum(word == "not ok" for word, _ in cases)
                skipped += skips
                passed += len(cases) - bad - skips
                # A program that died after its last "ok" has failed all the same.
                failed += max(bad, test["result"] not in ("OK", "EXPECTEDFAIL"))
    return passed, failed, skipped


GOOD = ("OK", "EXPECTEDFAIL", "SKIP")


def words_of_failed(test):
    """The lines of each failed case: what it printed itself, its result, what failed in it; else the last ones of all."""
    said, case, is_bad = [], [], False
    for line in (test.get("stdout") or "").splitlines():
        if re.match(r"ok\b|not ok\b.*# SKIP", line):
            case, is_bad = [], False
            continue
        case.append(line)
        is_bad = is_bad or line.startswith("not ok")
        if is_bad:
            said += case
            case = []
        # So ends what is said of a failure.
        is_bad = is_bad and not line.endswith("error: Failure!")
    if not said:
        said = (test.get("stdout") or "").splitlines()[-5:] or ["(it printed nothing)"]
    # fail_msg() speaks to stderr.
    said += [line for line in (test.get("stderr") or "").splitlines() if line.startswith("ERROR: ")]
    # Who runs long enough says a lot.
    return said if len(said) <= 200 else said[:100] + ["..."] + said[-100:]


def print_failed(path):
    with open(path) as log:
        for line in log:
            test = json.loads(line)
            if test["result"] in GOOD:
                continue
            print(f"--- {test['name']}: {test['result']}, exit status {test['returncode']}")
            for words in words_of_failed(test):
                print(f"    {words}")


def count_pytest(path):
    passed = failed = skipped = 0
    for suite in ET.parse(path).getroot().iter("testsuite"):
        tests, bad = int(suite.get("tests")), int(suite.get("failures")) + int(suite.get("errors"))
        skip = int(suite.get("skipped"))
        passed, failed, skipped = passed + tests - bad - skip, failed + bad, skipped + skip
    return passed, failed, skipped


def main():
    total = [0, 0, 0]
    if sys.argv[1:2] == ["--failed"]:
        print_failed(sys.argv[2])
        return 0
    for path in sys.argv[1:]:
        try:
            one = count_meson(path) if path.endswith(".json") else count_pytest(path)
        except OSError as error:
            print(f"count: {error}", file=sys.stderr)
            one = (0, 1, 0)
        total = [a + b for a, b in zip(total, one)]
    print(f"{total[0]} passed, {total[1]} failed" + (f", {total[2]} skipped" if total[2] else ""))
    return 1 if total[1] or not total[0] else 0


sys.exit(main())
