"""What commands of a shell change, as agents write them: each case says what a person reads in it."""

from __future__ import annotations

import pytest

from suffice.common.shell import shell_commands
from suffice.importers.transcripts.visible import VisibleFiles

PASSING = "/" + "tmp"
NOTHING: set[str] = set()
UNNAMED = {"*"}
PATCH = "*** Begin Patch\n*** Update File: src/a.py\n@@\n-x\n+y\n*** Add File: new.py\n+z\n*** Delete File: old.py\n*** End Patch"
DIFF = "--- a/src/a.py\n+++ b/src/a.py\n@@ -1 +1 @@\n-x\n+y\n"
LOOKS = [
    "ls tests/runtests.py",
    "ls -R | grep ':$' | head -n 5 && grep -r 'def model_to_dict' .",
    "cat django/forms/models.py",
    "nl -ba src/a.py | sed -n '150,180p'",
    "sed -n '40,50p;80,90p' src/a.py",
    "grep -rn 'a > b' src | head",
    "grep -n \"open('x', 'w')\" src/a.py",
    "find . -name '*.py' -not -path './.git/*' | xargs grep -l foo",
    "git diff > /dev/null 2>&1; git status; git log --oneline -5 -- src/a.py",
    "git add -A && git diff --cached",
    "git checkout -b fix",
    "git stash list",
    "git restore --staged src/a.py",
    "git apply --check fix.patch",
    "awk '{ if ($1 > 3) print > \"/dev/stderr\" }' data.txt",
    "if [[ $a > $b ]]; then echo more; fi",
    "echo done 2>&1 | tee /dev/null",
    "pip install -e . > /dev/null && make -j4",
    "npm install --silent",
    "python -c 'print(open(\"a.txt\").read())'",
    "python - <<'EOF'\nimport a\nprint(a.x > 3)\nEOF",
    f"python repro.py > {PASSING}/out.txt 2>&1; tail -5 {PASSING}/out.txt",
    "PYTHONPATH=. timeout 60 pytest tests -q 2>&1 | tail -20",
    "cd src && head -n 3 a.py",
    "black --check src && ruff check src && isort --check-only src && gofmt -l .",
    "diff <(sort a) <(sort b)",
    "echo 'rm -rf src; echo x > src/a.py'",
    "# echo x > src/a.py\nls",
    "cat src/a.py | python -m json.tool",
    "mkdir -p build && cd build && ls",
    "curl -s http://localhost:8000/x",
    'echo "unclosed',
    "",
]
CHANGES = [
    ("echo x > a.txt", {"a.txt"}),
    ("echo x >> log/run.log 2>&1", {"log/run.log"}),
    ("make &> build.log", {"build.log"}),
    (": > empty.txt", {"empty.txt"}),
    ("cat <<'EOF' > repro.py\nimport os\nprint(1 > 0)\nEOF", {"repro.py"}),
    ('cat > "my file.py" << EOF\nx\nEOF\npython "my file.py"', {"my file.py"}),
    ("cat > a.py <<'EOF'\nx = '<<EOF2'\nEOF\ncat > b.py <<-EOF\n\ty\n\tEOF", {"a.py", "b.py"}),
    ("cat > cut.py <<'EOF'\nprint('no end", {"cut.py"}),
    ("sed -i 's/a/b/' src/a.py", {"src/a.py"}),
    ("sed -i.bak -e 's/a/b/' -e 's/c/d/' src/a.py src/b.py", {"src/a.py", "src/b.py"}),
    ("sed -i '10,12d;s#x > y#z#' src/a.py && sed -n 1,20p src/a.py", {"src/a.py"}),
    ("sed -i s/a/b/ src/*.py", UNNAMED),
    ("for f in a.py b.py; do sed -i 's/x/y/' $f; done", UNNAMED),
    ("grep -rl foo src | xargs sed -i 's/foo/bar/g'", UNNAMED),
    ("find . -name '*.pyc' -delete", UNNAMED),
    ("find src -name '*.py' -exec sed -i 's/a/b/' {} +", UNNAMED),
    ("perl -pi -e 's/a/b/' src/a.py", {"src/a.py"}),
    ("cd src && sed -i s/a/b/ a.py", {"src/a.py"}),
    ("cd /testbed/src && echo x > ../b.txt", {"b.txt"}),
    ("(cd src; echo x > a.txt)", {"src/a.txt"}),
    ("bash -lc 'cd src && echo x > a.txt'", {"src/a.txt"}),
    ("bash <<'EOF'\necho x > a.txt\nEOF", {"a.txt"}),
    ("sudo env X=1 tee conf.ini < in.txt", {"conf.ini"}),
    ("echo y | tee -a one.txt two.txt > /dev/null", {"one.txt", "two.txt"}),
    ("x=$(echo 1 > n.txt)", {"n.txt"}),
    ("python - <<'EOF'\nfrom pathlib import Path\nPath('src/a.py').write_text('x')\nEOF", {"src/a.py"}),
    ("python3 -c \"open('src/a.py', 'w').write('x')\"", {"src/a.py"}),
    ("python - <<'EOF'\nfor p in names:\n    with open(p, 'w') as f:\n        f.write('x')\nEOF", UNNAMED),
    ("cat <<'EOF' | python\nimport shutil\nshutil.rmtree('build')\nEOF", UNNAMED),
    ("node -e \"require('fs').writeFileSync('a.js', 'x')\"", {"a.js"}),
    ("touch a/__init__.py b.py", {"a/__init__.py", "b.py"}),
    ("cp src/a.py src/a.py.orig", {"src/a.py.orig"}),
    ("mv src/a.py src/b.py", {"src/a.py", "src/b.py"}),
    ("rm -f src/a.py", {"src/a.py"}),
    ("git rm -q src/a.py && git mv src/b.py src/c.py", {"src/a.py", "src/b.py", "src/c.py"}),
    ("git checkout main~2", UNNAMED),
    ("git checkout main -- src/a.py", UNNAMED),
    ("git merge topic", UNNAMED),
    ("git apply fix.patch", UNNAMED),
    (f"git apply <<'EOF'\n{DIFF}EOF", {"src/a.py"}),
    (f"patch -p1 <<'EOF'\n{DIFF}EOF", {"src/a.py"}),
    ("patch -p1 < fix.diff", UNNAMED),
    (f"apply_patch <<'EOF'\n{PATCH}\nEOF", {"src/a.py", "new.py", "old.py"}),
    ("black .", UNNAMED),
    ("black src/a.py && isort src/b.py -q", {"src/a.py", "src/b.py"}),
    ("ruff check --fix src/a.py", {"src/a.py"}),
    ("python -m black src/a.py", {"src/a.py"}),
    ("npx prettier --write web/a.ts; gofmt -w main.go", {"web/a.ts", "main.go"}),
    ("wget -q -O data.zip http://localhost/x", {"data.zip"}),
    ("if ! grep -q x a.py; then echo x >> a.py; fi", {"a.py"}),
]


@pytest.mark.parametrize("command", LOOKS)
def test_a_command_that_only_looks_changes_nothing(command):
    files = VisibleFiles("/testbed")
    assert not files.run(command)
    assert files.changed == NOTHING
    assert files.digest is None


@pytest.mark.parametrize(("command", "changed"), CHANGES, ids=[command for command, _ in CHANGES])
def test_the_files_that_a_command_changes_are_those_that_it_names(command, changed):
    files = VisibleFiles("/testbed")
    assert files.run(command)
    assert files.changed == changed


FIXED = "sed -i s/a/b/ src/a.py"


@pytest.mark.parametrize(
    ("there", "back"),
    [
        ("echo 1 > try.py", "rm try.py"),
        ("cat > /testbed/try.py <<'EOF'\nx\nEOF", "cd /testbed && rm -f try.py"),
        ("mkdir tmp && echo 1 > tmp/a && echo 2 > tmp/b", "rm -rf tmp"),
        ("echo 1 > try.py && mv try.py other.py", "rm other.py"),
        ("cp src/b.py b.bak; sed -i s/x/y/ src/b.py", "mv b.bak src/b.py"),
        ("cp src/a.py a.bak; sed -i s/x/y/ src/a.py", "mv a.bak src/a.py"),
        ("sed -i s/x/y/ src/b.py", "git checkout -- src/b.py"),
        ("sed -i s/x/y/ src/b.py", "git checkout src/b.py"),
        ("sed -i s/x/y/ src/b.py", "git restore src/b.py"),
        ("git stash", "git stash pop"),
        ("git stash && python repro.py", "git stash apply; git stash drop"),
        ("echo 1 > try.py", "git clean -fd"),
        ("ls", "touch src/a.py"),
    ],
)
def test_what_is_taken_back_gives_the_state_before(there, back):
    files = VisibleFiles("/testbed")
    files.run(FIXED)
    before = files.digest
    files.run(there)
    files.run(back)
    assert files.digest == before


def test_git_takes_back_everything_but_new_files():
    files = VisibleFiles("/testbed")
    files.run(f"{FIXED}; echo 1 > new.py")
    files.run("git checkout .")
    assert files.changed == {"new.py"}
    files.run(f"{FIXED}; git commit -qam fix; git reset --hard")
    assert "*" in files.changed  # a commit is no longer the beginning


def test_the_same_content_is_the_same_state_however_written():
    one, other = VisibleFiles("/testbed"), VisibleFiles("/testbed")
    one.run("cat > a.py <<'EOF'\nx = 1\nEOF")
    other.edit("/testbed/a.py", "x = 1", makes=True)
    assert one.digest == other.digest
    other.edit("/testbed/a.py", "x = 2", makes=True)
    assert one.digest != other.digest


def test_a_folder_is_kept_only_by_a_shell_that_goes_on():
    stays, fresh = VisibleFiles("/testbed", stays=True), VisibleFiles("/testbed")
    for files in (stays, fresh):
        files.run("cd src")
        files.run("echo 1 > a.py")
    assert (stays.changed, fresh.changed) == ({"src/a.py"}, {"a.py"})


def test_the_first_folder_renames_no_state():
    files = VisibleFiles()
    files.edit("/repo/a.py", "x")
    before = files.digest
    files.run("cd /repo && ls")
    assert files.digest == before
    files.run("sed -i s/x/y/ a.py")
    assert files.changed == {"a.py"}


@pytest.mark.parametrize(
    "script", ["'", '"' * 99, "<<", "cat <<", ">", "a >", "$(" * 500, "\\", "\0\ud800", "é > ü.txt", "x" * 10**6]
)
def test_no_script_is_refused(script):
    shell_commands(script)
    VisibleFiles().run(script)
