"""The package as a whole: public names, light imports, missing extras, import contracts, and what no file may hold."""

import ast
import importlib
import inspect
import json
import os
import pkgutil
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from scripts.lowest import lowest
from scripts.version import versions

import suffice
from suffice.cli.tree import TREE
from suffice.common import provided as provided_module
from suffice.common.provided import PROVIDES, provided
from suffice.errors import MissingExtraError, NotFittedError
from suffice.recordings.shards import Shard
from tests.support.cli_tools import cli

ROOT = Path(__file__).resolve().parents[3]
DISTRIBUTIONS = {
    "suffice": ROOT,
    **{path.parent.name: path.parent for path in sorted((ROOT / "packages").glob("*/pyproject.toml"))},
}
"""The folder of each distribution, by the name that pip has for it."""
SOURCES = {name.replace("-", "_"): folder / "src" / name.replace("-", "_") for name, folder in DISTRIBUTIONS.items()}
"""The folder of each distribution's modules, by the name that Python has for it."""
FOUND = [
    item
    for name, source in SOURCES.items()
    for item in (pkgutil.ModuleInfo(None, name, ispkg=True), *pkgutil.walk_packages([str(source)], f"{name}."))
    if "snippets" not in item.name
]
PACKAGES = sorted(item.name for item in FOUND if item.ispkg)
MODULES = sorted(item.name for item in FOUND if not item.name.endswith("__main__"))
PROJECTS = {
    name: tomllib.loads((folder / "pyproject.toml").read_text())["project"] for name, folder in DISTRIBUTIONS.items()
}
PROJECT = PROJECTS["suffice"]


def python(code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], check=False, capture_output=True, text=True, timeout=1800
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def without(modules: tuple[str, ...], code: str) -> str:
    """Run code where some modules cannot be imported, as if they were not installed."""
    block = f"import sys\nfor name in {modules!r}: sys.modules[name] = None\n"
    return python(block + code)


def tracked() -> list[Path]:
    """Return the files of the repository; outside git, those that are not build products."""
    try:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        found = [ROOT / name for name in listed.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        ignored = {".git", ".venv", "__pycache__", "build", "dist"}
        found = [p for p in ROOT.rglob("*") if not ignored.intersection(p.relative_to(ROOT).parts)]
    return [path for path in found if path.is_file()]


@pytest.mark.parametrize("name", PACKAGES)
def test_all_equals_the_public_names(name):
    module = importlib.import_module(name)
    defined = {}
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        is_ours = isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("suffice")
        if is_ours and node.module not in ("suffice.common.lazy", "suffice.common.provided"):
            defined |= {alias.asname or alias.name: node.module for alias in node.names}
    public = {item for item in defined if not item.startswith("_") or item == "__version__"}
    listed = getattr(module, "__all__", [])
    assert sorted(listed) == sorted(set(listed))
    assert set(listed) == public
    for item in listed:  # a name that is imported on first use comes from where type checkers see it
        assert getattr(module, item) is getattr(importlib.import_module(defined[item]), item)


def test_every_module_says_what_it_offers():
    for name in MODULES:
        module = importlib.import_module(name)
        assert (module.__doc__ or "").strip(), name
        for item in getattr(module, "__all__", ()):
            assert hasattr(module, item), f"{name}.__all__ names {item!r}, which is not there"


def test_dir_lists_the_public_names_only():
    assert dir(suffice) == sorted(suffice.__all__)


@pytest.mark.parametrize(
    "verb", ["calibrate", "certify", "diagnose", "import_recording", "record", "replay", "report", "search"]
)
def test_the_verbs_have_real_parameters_and_an_example(verb):
    function = getattr(suffice, verb)
    assert inspect.isfunction(function)
    for parameter in inspect.signature(function).parameters.values():
        assert parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL), parameter
        assert parameter.annotation is not parameter.empty, parameter
        assert f"    {parameter.name}: " in inspect.getdoc(function), parameter
    assert ">>> " in function.__doc__


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'nonsense'"):
        _ = suffice.nonsense


def _exports(module):
    return [getattr(module, item) for item in getattr(module, "__all__", ())]


def test_every_public_name_has_a_docstring():
    """Methods too, of every class that a package exports."""
    exported = {
        value for name in PACKAGES for value in _exports(importlib.import_module(name)) if inspect.isclass(value)
    }
    bare = []
    for name in MODULES:
        if name.rpartition(".")[2].startswith("_"):
            continue
        module = importlib.import_module(name)
        for item, value in vars(module).items():
            ours = getattr(value, "__module__", None) == name and not item.startswith("_")
            if not ours or not (inspect.isclass(value) or inspect.isfunction(value)):
                continue
            bare += [] if value.__doc__ else [f"{name}.{item}"]
            members = vars(value) if inspect.isclass(value) and value in exported else {}
            for member, function in members.items():
                is_public = not member.startswith("_") and (
                    inspect.isroutine(function) or isinstance(function, property)
                )
                if is_public and not inspect.getdoc(getattr(value, member)):  # an inherited one counts
                    bare.append(f"{name}.{item}.{member}")
    assert not bare


@pytest.mark.whole
def test_importing_suffice_loads_numpy_only():
    code = "import json, sys, suffice; print(json.dumps(sorted({n.partition('.')[0] for n in sys.modules})))"
    loaded = set(json.loads(python(code))) - sys.stdlib_module_names
    third_party = {
        name for name in loaded if not name.startswith("_") and name not in ("sitecustomize", "usercustomize")
    }
    editable = {name for name in third_party if name.startswith("__editable__")}
    assert third_party - editable == {"suffice", "numpy"}


@pytest.mark.whole
def test_no_array_is_made_when_commands_are_imported():
    # pyarrow loads pandas for its first array where it is installed: a third of the time until a help text appears.
    code = "import sys, suffice.importers, suffice.cli.recording, suffice.cli.offline; print('pandas' in sys.modules)"
    assert python(code).split() == ["False"]


@pytest.mark.whole
def test_deciding_needs_numpy_only():
    """What a deployment runs: load a policy, observe rounds."""
    heavy = ("scipy", "sklearn", "pyarrow", "bm25s", "tantivy", "openai", "typer", "rich", "onnxruntime", "tokenizers")
    out = without(
        heavy,
        "from suffice import Policy, Round, Session, parse_rule, tasr\n"
        "session = Session(Policy(rule=tasr()))\n"
        "for r in (1, 2): d = session.observe(Round(index=r, answer='Oslo', signals={'p_correct': 0.9}))\n"
        "policy = Policy.from_dict(session.policy.to_dict())\n"
        "print(d.reason, d.answer, policy.rule == parse_rule('tasr'))",
    )
    assert out.split() == ["rule", "Oslo", "True"]


def test_a_policy_can_be_checked_where_no_model_is_known():
    """A deployment's start: fitted state is looked at, what the host gives is not."""
    suffice.Policy(rule="answer_stable").check()
    with pytest.raises(NotFittedError, match="calibrator"):
        suffice.Policy(rule=suffice.tasr()).check()


MISSING = [
    ("onnxruntime", "./packages/suffice-reader", "from suffice_reader import SpanReaderModel; SpanReaderModel()"),
    ("tokenizers", "./packages/suffice-reader", "from suffice_reader import SpanReaderModel; SpanReaderModel()"),
    ("onnxruntime", "./packages/suffice-reader", "from suffice_reader import MiniLM; MiniLM()"),
    ("tokenizers", "./packages/suffice-reader", "from suffice_reader import MiniLM; MiniLM()"),
    ("openai", ".[endpoint]", "from suffice.loops.models import ChatModel; ChatModel('m', base_url='http://localhost:1/v1')"),
    ("vl_convert", ".[charts]", "from suffice.common.display import Chart; Chart({}).svg()"),
    ("sentence_transformers", ".[dense]", "from suffice import Passage; from suffice_retrieval.indexes.dense import DenseRetriever; DenseRetriever('any').rank('q', pool=[Passage(passage_id='1', title='t', text='x')])"),
    ("sentence_transformers", ".[dense]", "from suffice.loops.models.sentence_transformers import SentenceTransformersEmbedder; SentenceTransformersEmbedder('any').embed(['x'])"),
    ("sentence_transformers", ".[dense]", "from suffice import Passage; from suffice_gates.rerank import CrossEncoderScorer; CrossEncoderScorer('x').scores('q', [Passage(passage_id='1', title='t', text='x')])"),
    ("psycopg", "./packages/suffice-retrieval[postgres]", "from suffice_retrieval.stores import PostgresStore; PostgresStore('postgresql://host/db', table='p')"),
    ("qdrant_client", "./packages/suffice-retrieval[qdrant]", "from suffice_retrieval.stores import QdrantStore; QdrantStore('p', url='http://host', embedder=lambda texts: texts)"),
    ("lancedb", "./packages/suffice-retrieval[lancedb]", "from suffice_retrieval.stores import LanceDBStore; LanceDBStore('folder', table='p')"),
    ("elasticsearch", "./packages/suffice-retrieval[elasticsearch]", "from suffice_retrieval.stores import ElasticsearchStore; ElasticsearchStore('http://host', 'passages')"),
    ("opensearchpy", "./packages/suffice-retrieval[opensearch]", "from suffice_retrieval.stores import OpenSearchStore; OpenSearchStore('http://host', 'passages')"),
    ("bm25s", "./packages/suffice-retrieval", "from suffice import Passage; from suffice_retrieval.indexes import CorpusBM25; CorpusBM25([Passage(passage_id='1', title='t', text='x')])"),
    ("tantivy", "./packages/suffice-retrieval", "import tempfile; from suffice_retrieval.indexes import CorpusBM25; CorpusBM25.build(tempfile.mkdtemp(), [], engine='tantivy')"),
    ("starlette", "./packages/suffice-server", "from suffice_server.serve import check_extra; check_extra('suffice serve')"),
    ("uvicorn", "./packages/suffice-server", "from suffice_server.commands.studio import studio_command; studio_command()"),
]  # fmt: skip
"""A module that is not installed, what to install, and a call that needs it."""

IN_TURN = """
import json, sys

for module, _, code in json.loads(sys.argv[1]):
    kept = sys.modules.pop(module, None)
    sys.modules[module] = None
    try:
        exec(code)
    except ImportError as error:
        print(type(error).__name__, "|", error)
    del sys.modules[module]
    if kept:
        sys.modules[module] = kept
"""


@pytest.mark.whole
def test_a_missing_extra_says_what_to_install():
    said = python(IN_TURN, json.dumps(MISSING)).splitlines()
    for line, (module, wanted, _) in zip(said, MISSING, strict=True):
        assert line.startswith("MissingExtraError |"), module
        assert "pip install" in line
        assert f"'{wanted}'" in line


BASE_LACKS = ("sklearn", "bm25s", "tantivy", "openai", "onnxruntime", "tokenizers", "sentence_transformers")


@pytest.mark.whole
def test_the_base_install_imports_replays_fits_certifies_searches_and_reports(tmp_path):
    """Without any extra; a command that needs one says so before any work."""
    rng = np.random.default_rng(0)
    path, out, family = tmp_path / "log.jsonl", tmp_path / "r.parquet", tmp_path / "rules.txt"
    with path.open("w") as lines:
        for q, r in np.ndindex(80, 3):
            right = bool(rng.random() < 0.3 + 0.2 * r)
            row = {"question_id": f"q{q}", "round": r + 1, "question": f"Who is {q}?", "golds": "Oslo"}
            row |= {"answer": "Oslo" if right else "Lima", "answer_margin": right + rng.random()}
            lines.write(json.dumps(row) + "\n")
    family.write_text("fixed_k(2)\nanswer_stable\n")
    policy = tmp_path / "policy.json"
    commands = [
        ["import", path, "-o", out, "--log-golds", "keep"],
        ["calibrate", out, "--rule", "p_correct > 0.4", "--set=method=platt", "-o", policy],
        ["replay", out, "--policy", policy, "--set=resamples=20"],
        ["certify", out, "--rules", family, "--max-loss", "0.9"],
        ["search", out, "--set=resamples=20", "--budget", "5"],
        ["report", out, "--policy", policy, "--set=resamples=20", "-o", tmp_path / "page.html"],
        ["demo", "--out", tmp_path / "demo"],
        ["record", "hotpotqa_eval", "-o", tmp_path / "s.parquet"],
        [
            "record",
            "hotpotqa_eval",
            "-o",
            tmp_path / "s.parquet",
            "--base-url",
            "http://localhost:1/v1",
            "--model",
            "m",
        ],
    ]
    code = (
        "from suffice.cli.main import run\n"
        f"for command in {[list(map(str, command)) for command in commands]!r}:\n"
        "    try: code = run(command)\n"
        "    except SystemExit as end: code = end.code\n"
        "    print('CODE', code)"
    )
    out = without(BASE_LACKS, code)
    codes = [line for line in out.splitlines() if line.startswith("CODE")]
    assert codes == ["CODE 0"] * 6 + ["CODE 1"] * 3, out
    assert not (tmp_path / "demo").exists()
    assert not (tmp_path / "s.parquet").exists()


def requirements() -> list[str]:
    """Return what the distributions need, with and without extras."""
    extras = [items for project in PROJECTS.values() for items in project.get("optional-dependencies", {}).values()]
    return [item for items in (*(project["dependencies"] for project in PROJECTS.values()), *extras) for item in items]


@pytest.mark.parametrize("name", [name for name in DISTRIBUTIONS if name != "suffice"])
def test_the_tests_of_a_package_import_what_its_extra_installs(name):
    """So that it can be tested alone, after `pip install . './packages/NAME[test]'`."""
    project = PROJECTS[name]
    needed = {*project["dependencies"], *project["optional-dependencies"]["test"]}
    allowed = {name, "suffice", *(re.match(r"[\w-]+", item)[0] for item in needed)}
    allowed |= {
        more
        for one in allowed & {"suffice-papers"}
        for more in re.findall(r"suffice-\w+", str(PROJECTS[one]["dependencies"]))
    }
    read = Written(is_asking=False)
    for path in (ROOT / "tests" / name.replace("-", "_")).rglob("*.py"):
        read.read(path, ast.parse(path.read_text()), lazy=False)
    ours = {top.replace("_", "-") for _, _, top, _ in read.imports if top.startswith("suffice")}
    assert ours
    assert ours <= allowed


def test_every_tool_looks_at_every_package():
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    names, folders = set(SOURCES), {f"packages/{name}/src" for name in DISTRIBUTIONS if name != "suffice"} | {"src"}
    assert set(tool["ruff"]["src"]) == set(tool["mypy"]["mypy_path"].split(":")) == folders
    assert set(tool["mypy"]["packages"]) == set(tool["importlinter"]["root_packages"]) == names
    layers = " | ".join(tool["importlinter"]["contracts"][0]["layers"])
    assert set(layers.split(" | ")) == names
    assert set(tomllib.loads((ROOT / "budgets.toml").read_text())["distributions"]) == names | {"tests"}
    assert {path.name for path in (ROOT / "tests").glob("suffice*")} == names
    checks, make = (ROOT / ".ci" / "run").read_text(), (ROOT / "Makefile").read_text()
    for name in names - {"suffice"}:
        word = name.removeprefix("suffice_")
        assert re.search(rf"^  with '?{word}\b", checks, re.MULTILINE), f".ci/run installs {name} alone"
        assert f"./packages/suffice-{word}" in make, f"`make dev` installs {name}"
        assert re.search(rf"^PACKAGES := .*\b{word}\b", make, re.MULTILINE), name


def test_one_package_has_one_lower_bound():
    bounds: dict[str, set[str]] = {}
    for requirement in requirements():
        if requirement.startswith("suffice"):
            continue
        name, bound = re.fullmatch(r"([\w.-]+)(?:\[[\w,-]+\])?(.*)", requirement).groups()
        bounds.setdefault(name, set()).add(bound)
    assert {name: found for name, found in bounds.items() if len(found) > 1} == {}


@dataclass
class Written:
    """What the modules of the package import, and which extras they ask for: one walk, which takes a second."""

    imports: list[tuple[Path, int, str, bool]] = field(default_factory=list)
    """Module, line, the top of what is imported, and whether that happens inside a function."""
    extras: set[tuple[str, str]] = field(default_factory=set)
    """Distribution and extra."""
    is_asking: bool = True
    """Whether the module asks for extras: only then its expressions are looked at, which are most of a tree."""

    def read(self, path: Path, node: ast.AST, *, lazy: bool) -> None:
        """Read a node and what is under it."""
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        self.imports += [(path, node.lineno, name.partition(".")[0], lazy) for name in names]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "MissingExtraError":
            given = dict(zip(("feature", "extra", "distribution"), node.args, strict=False))
            given |= {item.arg: item.value for item in node.keywords}
            if isinstance(given.get("extra"), ast.Constant):
                distribution = ast.literal_eval(given["distribution"]) if "distribution" in given else "suffice"
                self.extras.add((distribution, ast.literal_eval(given["extra"])))
        lazy = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for child in ast.iter_child_nodes(node):
            if self.is_asking or isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
                self.read(path, child, lazy=lazy)


@pytest.fixture(scope="module")
def written():
    found = Written()
    for source in SOURCES.values():
        for path in source.rglob("*.py"):
            text = path.read_text()
            found.is_asking = "MissingExtraError" in text
            found.read(path, ast.parse(text), lazy=False)
    return found


def test_every_extra_that_is_asked_for_exists(written):
    asked = written.extras
    assert asked
    stores = [
        importlib.import_module("suffice_retrieval.stores." + name)
        for name in ("elastic", "lance", "postgres", "qdrant")
    ]
    asked |= {
        ("suffice-retrieval", kind.extra)
        for store in stores
        for kind in vars(store).values()
        if getattr(kind, "extra", "")
    }
    assert ("suffice-retrieval", "lancedb") in asked
    assert asked <= {
        (name, extra) for name, project in PROJECTS.items() for extra in project.get("optional-dependencies", ())
    }


def _may_load_torch(path: Path) -> bool:
    """Local models and training; there too inside functions only."""
    inside = path.relative_to(ROOT / "packages").as_posix() if (ROOT / "packages") in path.parents else ""
    rooms = ("suffice-gates/src/suffice_gates/training/", "suffice-gates/src/suffice_gates/models/")
    papers = ("suffice-papers/src/suffice_papers/cbdr/", "suffice-papers/src/suffice_papers/rivals/")
    papers += ("suffice-papers/src/suffice_papers/tiny_llama.py",)
    return inside.startswith(rooms + papers)


def test_torch_is_imported_in_functions_of_local_models_and_training_only(written):
    heavy = [item for item in written.imports if item[2] in ("torch", "transformers")]
    assert heavy
    for path, line, _, lazy in heavy:
        assert _may_load_torch(path), path
        assert lazy, f"{path}:{line} imports torch with the module"


@pytest.mark.whole
def test_modules_are_imported_without_torch_and_models_say_what_to_install():
    """Local models, probes and training too: what needs torch imports it when it is used."""
    heavy = ("torch", "transformers", "accelerate", "datasets", "sentence_transformers")
    out = without(
        heavy,
        f"import importlib\nfor name in {MODULES!r}: importlib.import_module(name)\n"
        "from suffice_gates.models import TransformersModel\n"
        "try:\n    TransformersModel('any')\n"
        "except ImportError as error:\n    print(type(error).__name__, error.extra, '|', error)",
    )
    assert out.startswith("MissingExtraError torch |")


def test_every_base_dependency_is_imported(written):
    modules = {"scikit-learn": "sklearn", "prometheus-client": "prometheus_client"}
    for name, project in PROJECTS.items():
        source = SOURCES[name.replace("-", "_")]
        imported = {top for path, _, top, _ in written.imports if str(path).startswith(f"{source}{os.sep}")}
        needed = [re.match(r"[\w-]+", item)[0] for item in project["dependencies"]]
        lacking = {modules.get(item, item.replace("-", "_")) for item in needed} - imported
        assert lacking <= {"suffice_retrieval"}, name  # papers ask its methods through the command line


def test_every_distribution_has_the_same_version():
    assert {version for named in versions().values() for version in named} == {suffice.__version__}
    assert f"## {suffice.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_a_distribution_pins_those_that_it_needs():
    pins = [item for project in PROJECTS.values() for item in project["dependencies"] if item.startswith("suffice")]
    assert len(pins) >= len(PROJECTS) - 1
    assert all(item.endswith(f"=={suffice.__version__}") for item in pins)


@pytest.mark.parametrize("name", [name for name in DISTRIBUTIONS if name != "suffice"])
def test_a_message_names_every_package_that_a_missing_one_needs(name):
    pinned = {item.partition("==")[0] for item in PROJECTS[name]["dependencies"] if item.startswith("suffice-")}
    assert {*re.findall(r"suffice-\w+", str(MissingExtraError("it", distribution=name)))} == {name} | pinned


def test_what_is_asked_for_by_name_is_provided_by_the_named_package():
    asked = {
        node.args[0].value
        for source in SOURCES.values()
        for path in source.rglob("*.py")
        if "provided(" in (text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", "") == "provided"
        and isinstance(node.args[0], ast.Constant)
    } | set(suffice._PROVIDED.values())
    provides = {
        name: distribution
        for distribution, project in PROJECTS.items()
        for name in project.get("entry-points", {}).get(PROVIDES, ())
    }
    assert asked == set(provides)
    for name, distribution in provides.items():
        assert distribution == f"suffice-{name.partition('.')[0]}"
        assert provided(name) is not None


def test_a_missing_satellite_says_what_to_install(monkeypatch):
    monkeypatch.setattr(provided_module, "_provided", dict)
    with pytest.raises(MissingExtraError, match=r"'\./packages/suffice-retrieval'"):
        provided("retrieval.open_corpus")


@pytest.mark.parametrize(
    ("option", "words"), [("--shard", ("--shard", "1/2")), ("--batch", ("--batch",)), ("--on", ("--on", "ray"))]
)
def test_options_of_scale_say_what_to_install(monkeypatch, tmp_path, option, words):
    monkeypatch.setattr(provided_module, "_provided", dict)
    endpoint = ("--model", "m", "--base-url", "http://127.0.0.1:9/v1", "--set=logprobs=false")
    said = cli("record", "hotpotqa_tune", "-o", tmp_path / "shards", *endpoint, *words).error
    assert all(word in said for word in (option, "./packages/suffice-scale"))


def test_learning_where_to_stop_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(provided_module, "_provided", dict)
    recording = ROOT / "src" / "suffice" / "data" / "recorded" / "self_refine_dv3.parquet"
    said = cli("calibrate", recording, "--learn-stop", "lexical_support", "-o", tmp_path / "p.json").error
    assert all(word in said for word in ("--learn-stop", "./packages/suffice-gates './packages/suffice-papers'"))


def test_a_folder_of_shards_says_what_reads_it(monkeypatch, tmp_path):
    (tmp_path / Shard(1, 2).part_name).touch()
    monkeypatch.setattr(provided_module, "_provided", dict)
    with pytest.raises(MissingExtraError, match="packages/suffice-scale"):
        suffice.read_recording(tmp_path)


def test_no_text_says_to_install_by_a_name_that_no_index_has():
    by_name = re.compile(r"pip install[^`|&;#\n]*[ '\"]suffice")
    changes = (ROOT / "CHANGELOG.md").read_text()
    texts = {ROOT / "CHANGELOG.md": re.sub(r"^\|[^|]*", "", changes, flags=re.MULTILINE)}  # without the former names
    for folder in ("src", "packages", "docs", "examples"):
        texts |= {path: path.read_text() for kind in ("md", "py") for path in (ROOT / folder).rglob(f"*.{kind}")}
    texts |= {path: path.read_text() for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md")}
    found = [f"{path.relative_to(ROOT)}: {hit[0]}" for path, text in texts.items() for hit in by_name.finditer(text)]
    assert found == []
    assert by_name.search("run  pip install 'suffice[math]'")
    assert not by_name.search("pip install . './packages/suffice-gates[torch]'")


def test_every_place_of_a_package_has_a_command_or_is_a_group():
    places = {words: place.distribution for words, place in TREE.items() if place.distribution}
    assert places
    for words, distribution in places.items():
        entries = PROJECTS[distribution]["entry-points"]["suffice.commands"]
        assert any(f"{name} ".replace(".", " ").startswith(f"{words} ") for name in entries), words


@pytest.mark.whole
def test_the_import_contracts_hold():
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))",
        ],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
        timeout=1800,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 broken" in done.stdout


def test_the_picture_of_the_house_shows_the_floors_of_the_import_contract():
    """CONTRIBUTING has one line for each room; a bar means the floor of the room before."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    house = next(item for item in contracts if item.get("containers") == ["suffice"])
    floors = [layer.split(" | ") for layer in house["layers"]]
    picture = re.search(
        r"The rooms of `src/suffice`.*?```text\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL
    )[1]
    drawn = []
    for line in picture.splitlines():
        beside, room, _ = re.fullmatch(r"( \| )?(\w+) +(\w.*)", line).groups()
        drawn[-1].append(room) if beside else drawn.append([room])
    assert drawn == floors


def test_init_files_only_export():
    for path in (path for source in SOURCES.values() for path in source.rglob("__init__.py")):
        for node in ast.parse(path.read_text()).body:
            assert not isinstance(node, ast.ClassDef | ast.For | ast.While), path
            if isinstance(node, ast.FunctionDef):
                assert node.name in ("__getattr__", "__dir__"), path


@pytest.mark.whole
def test_no_file_holds_a_path_of_some_machine():
    # Spelled in parts, so that this file does not hold them either.
    names = [b"ho" + b"me", b"Us" + b"ers", b"ro" + b"ot", b"wo" + b"rk", b"t" + b"mp"]
    places = re.compile(rb"(?<![\w.:/-])/(?:" + b"|".join(names) + rb")/\w")
    binary = {".gz", ".onnx", ".parquet", ".safetensors", ".png"}
    found = []
    for path in tracked():
        if path.suffix in binary:
            continue
        text = path.read_bytes()
        if not any(b"/" + name in text for name in names):  # a search in all of them takes a second
            continue
        for number, line in enumerate(text.splitlines(), start=1):
            if places.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line[:120]!r}")
    assert not found, "\n".join(found)


@pytest.mark.whole
def test_no_tracked_file_is_huge():
    """Weights are the largest thing that ships."""
    assert max(path.stat().st_size for path in tracked()) <= 30_000_000


def test_every_benchmark_states_its_question_and_runs_without_arguments():
    for path in sorted((ROOT / "benchmarks").glob("bench_*.py")):
        tree = ast.parse(path.read_text())
        functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert "run" in functions, path
        arguments = functions["run"].args
        assert len(arguments.args) == len(arguments.defaults), f"{path.name}: run() needs no arguments"
        assert (ast.get_docstring(tree) or "").count("?"), f"{path.name} states the question that it answers"


def test_an_unknown_benchmark_is_wrong_usage(capsys):
    from benchmarks.__main__ import main

    with pytest.raises(SystemExit) as ended:
        main(["nonsense"])
    assert ended.value.code == 2
    assert "there is no benchmark 'nonsense'" in capsys.readouterr().err


@pytest.mark.whole
def test_a_failing_benchmark_is_a_line_and_an_exit_code(capsys, monkeypatch):
    import benchmarks.__main__ as runner

    def run():
        raise AssertionError("not equal")

    monkeypatch.setattr(runner, "names", lambda: ["broken"])
    monkeypatch.setitem(sys.modules, "benchmarks.bench_broken", type("Module", (), {"run": staticmethod(run)}))
    assert runner.main([]) == 1
    line, summary = (json.loads(text) for text in capsys.readouterr().out.splitlines())
    assert (line["ok"], line["error"]) == (False, "AssertionError: not equal")
    assert summary == {"summary": True, "ran": 1, "failed": ["broken"]}


def test_every_dependency_has_a_lowest_version_for_ci_to_install():
    declared = PROJECT["dependencies"]
    pinned = dict(line.split("==") for line in lowest(declared))
    assert len(pinned) == len(declared)
    assert tuple(map(int, pinned["typer"].split("."))) >= (0, 19, 2)  # older ones fail with the click of today
    with pytest.raises(SystemExit, match="numpy"):
        lowest(["numpy"])


def test_no_pattern_repeats_a_group_possessively():
    # Before Python 3.11.4 such a group moves on past a repetition that fails: "-5" lost its sign.
    repeated = re.compile(r"(?<!\\)\)(?:[*+?]|\{[\d,]+\})\+")
    found = [
        f"{file.name}: {line.strip()}"
        for source in SOURCES.values()
        for file in source.rglob("*.py")
        for line in file.read_text("utf-8").splitlines()
        if repeated.search(line)
    ]
    assert found == []
    assert repeated.search(r"(?:a|b)*+")
