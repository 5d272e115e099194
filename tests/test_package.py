"""What is published: the wheel, the sdist, and the files that speak of them."""

import importlib.util
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from types import ModuleType

import pytest
import yaml


ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NAME = f"natgrad-{PROJECT['version']}"
MOST_BYTES = 500_000
HOME = "https://github.com/natgrad/natgrad"


def build(source: Path, out: Path, *kinds: str) -> None:
    command = [sys.executable, "-m", "build", "--no-isolation", *kinds]
    found = subprocess.run(
        [*command, "--outdir", str(out), str(source)], capture_output=True, text=True
    )
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    build(ROOT, out)  # the sdist, and of it the wheel
    return out


@pytest.fixture(scope="module")
def wheel(built) -> dict[str, bytes]:
    (path,) = built.glob("*.whl")
    assert path.name == f"{NAME}-py3-none-any.whl"
    assert path.stat().st_size < MOST_BYTES
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def metadata(wheel) -> Message:
    return message_from_bytes(wheel[f"{NAME}.dist-info/METADATA"])


def test_the_wheel_holds_the_package_and_no_more(wheel):
    source = ROOT / "src"
    ours = {str(path.relative_to(source)) for path in source.rglob("*.*")}
    ours = {name for name in ours if "__pycache__" not in name}
    inside = {name for name in wheel if not name.startswith(f"{NAME}.dist-info/")}
    assert inside == ours
    assert "natgrad/py.typed" in inside
    # The paper's experiments are run from a clone.
    assert {name.split("/")[0] for name in inside} == {"natgrad"}
    assert not [name for name in inside if "fig1" in name or "claims" in name]
    assert {Path(name).suffix for name in inside} == {".py", ".typed", ".csv"}
    assert b"Root-Is-Purelib: true" in wheel[f"{NAME}.dist-info/WHEEL"]
    licence = wheel[f"{NAME}.dist-info/licenses/LICENSE"]
    assert licence == (ROOT / "LICENSE").read_bytes()
    commands = wheel[f"{NAME}.dist-info/entry_points.txt"].decode()
    assert "natgrad = natgrad._cli:main" in commands


def test_the_sdist_is_what_the_wheel_is_made_of(built, wheel, tmp_path):
    (path,) = built.glob("*.tar.gz")
    assert path.name == f"{NAME}.tar.gz"
    assert path.stat().st_size < MOST_BYTES
    with tarfile.open(path) as archive:
        names = archive.getnames()
        archive.extractall(tmp_path, filter="data")
    tops = {name.split("/")[1] for name in names}
    assert tops == {
        *("src", "pyproject.toml", "PKG-INFO", ".gitignore"),
        *("README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff"),
    }
    of_repository = tmp_path / "of repository"
    build(ROOT, of_repository, "--wheel")
    (again,) = of_repository.glob("*.whl")
    with zipfile.ZipFile(again) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == wheel


def test_the_metadata_say_what_the_project_does(metadata):
    assert metadata["Name"] == "natgrad"
    assert metadata["Version"] == PROJECT["version"]
    assert metadata["Requires-Python"] == PROJECT["requires-python"]
    assert metadata["License-Expression"] == "Apache-2.0"
    extras = set(PROJECT["optional-dependencies"])
    assert set(metadata.get_all("Provides-Extra", [])) == extras
    required = metadata.get_all("Requires-Dist", [])
    bare = {line for line in required if "extra ==" not in line}
    assert bare == set(PROJECT["dependencies"])
    # Extras of our own are written out, so that no tool has to resolve them.
    assert not [line for line in required if line.startswith("natgrad")]


def test_markers_of_a_requirement_survive_the_build(metadata):
    required = metadata.get_all("Requires-Dist", [])
    rays = [line for line in required if line.startswith("ray")]
    (ray,) = [line for line in rays if "'nightly'" in line]
    assert "python_version < '3.13'" in ray


def test_on_pypi_every_link_of_the_readme_leads_to_this_version(metadata):
    readme = (ROOT / "README.md").read_text()
    shown = metadata.get_payload()
    links = re.findall(r"\]\(([^)\s]+)\)", shown)
    assert len(links) == len(re.findall(r"\]\(([^)\s]+)\)", readme))
    assert all(link.startswith(("https://", "#")) for link in links)
    at = f"{HOME}/blob/v{PROJECT['version']}/"
    for link in links:
        if link.startswith(at):
            assert (ROOT / link.removeprefix(at).partition("#")[0]).exists(), link
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", shown)
    assert all("raw.githubusercontent.com" in link for link in pictures)
    code = re.compile(r"```.*?```", re.DOTALL)
    assert code.findall(shown) == code.findall(readme)


def test_every_extra_that_a_page_or_a_message_names_exists():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    texts = [
        path.read_text("utf-8") for path in (*pages, *(ROOT / "src").rglob("*.py"))
    ]
    named = re.findall(r"(?:natgrad|\.)\[([a-z]+(?:,[a-z]+)*)\]", "\n".join(texts))
    extras = {extra for names in named for extra in names.split(",")}
    assert {"cli", "sklearn"} <= extras <= set(PROJECT["optional-dependencies"])


def test_all_files_agree_on_the_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    changes = (ROOT / "CHANGELOG.md").read_text()
    released = re.findall(r"^## \[(\d[^\]]*)\]", changes, re.MULTILINE)
    assert PROJECT["version"] == citation["version"] == released[0]
    assert citation["license"] == PROJECT["license"]
    assert citation["repository-code"] == PROJECT["urls"]["Homepage"] == HOME
    assert citation["url"] == PROJECT["urls"]["Documentation"]


def test_the_lowest_versions_are_those_of_the_project():
    lines = list(PROJECT["dependencies"])
    for extra in ("onnx", "stablehlo", "plot"):
        lines += PROJECT["optional-dependencies"][extra]
    lines += PROJECT["optional-dependencies"]["sklearn"]
    lines += PROJECT["optional-dependencies"]["parquet"]
    lines += [
        line
        for line in PROJECT["optional-dependencies"]["test"]
        if line.startswith("pandas")
    ]
    pins = (ROOT / ".ci" / "constraints-lowest.txt").read_text().split()
    lowest = dict(pin.split("==") for pin in pins)
    bounds = dict(line.split(">=") for line in lines)
    assert lowest.keys() == bounds.keys()
    for name, bound in bounds.items():
        assert re.fullmatch(rf"{re.escape(bound)}(\.0)*", lowest[name]), name


def wanted(extra: str) -> set[str]:
    """The packages of an extra, those of its own extras among them."""
    names = set()
    for line in PROJECT["optional-dependencies"][extra]:
        if "python_version" in line:
            continue
        name, inner = re.fullmatch(r"([\w.-]+)(?:\[([\w,]+)\])?.*", line).groups()
        if name != "natgrad":
            names.add(re.sub("[-_.]+", "-", name).lower())
        else:
            names = names.union(*map(wanted, inner.split(",")))
    return names


@pytest.mark.parametrize(
    ("file", "extras"),
    [
        ("3.11", ("test", "lint", "docs")),
        ("nightly", ("nightly", "docs")),
        ("3.13", ("test",)),
        ("docs", ("docs",)),
    ],
)
def test_all_that_is_installed_is_locked_by_its_hash(file, extras):
    text = (ROOT / ".ci" / f"requirements-{file}.txt").read_text()
    line = re.compile(r"([a-z0-9-]+)==\S+ \\\n    --hash=sha256:[0-9a-f]{64}\n")
    assert line.sub("", text) == ""
    core = {re.split("[>=]", each)[0].lower() for each in PROJECT["dependencies"]}
    assert set(line.findall(text)) >= core.union(*map(wanted, extras))


def test_the_gate_installs_nothing_that_is_not_locked():
    scripts = [ROOT / ".ci" / name for name in ("common.sh", "run", "docs")]
    lines = [line for script in scripts for line in script.read_text().splitlines()]
    installs = [line for line in lines if "pip install" in line]
    assert installs
    for each in installs:
        assert "--require-hashes" in each or "--no-index" in each


def test_a_lock_keeps_what_pip_reports():
    lock = loaded("lock")
    found = {"archive_info": {"hashes": {"sha256": "ab" * 32}}}
    metadata = {"name": "Some_Package", "version": "1.0"}
    ours = {"metadata": {"name": "natgrad"} | {"version": "0"}, "download_info": {}}
    text = lock.locked(
        {"install": [{"metadata": metadata, "download_info": found}, ours]}
    )
    assert text == f"some-package==1.0 \\\n    --hash=sha256:{'ab' * 32}\n"
    assert lock.pins(text) == ["some-package==1.0"]


def test_the_same_source_is_built_to_the_same_bytes(built, tmp_path):
    build(ROOT, tmp_path)
    for path in built.iterdir():
        assert (tmp_path / path.name).read_bytes() == path.read_bytes()


def test_the_recipe_for_conda_asks_for_the_same():
    recipe = yaml.safe_load((ROOT / "packaging/conda-forge/recipe.yaml").read_text())
    assert recipe["context"]["version"] == PROJECT["version"]
    assert recipe["build"]["noarch"] == "python"
    run = dict(line.split(" ", 1) for line in recipe["requirements"]["run"])
    python = run.pop("python")
    assert python == ">=${{ python_min }}"
    assert f">={recipe['context']['python_min']}" == PROJECT["requires-python"]

    asked = dict(re.split(r"(?=>=)", line) for line in PROJECT["dependencies"])
    assert run == {name: bound for name, bound in asked.items()}
    host = {line.split(" ")[0] for line in recipe["requirements"]["host"]}
    build_system = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]
    needed = {re.split(">=", line)[0] for line in build_system["requires"]}
    assert host == {"python", "pip", *needed}


def loaded(name: str) -> ModuleType:
    """A script of the gate, as a module."""
    where = ROOT / ".ci" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, where)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_extra_for_users_has_a_promise():
    for_developers = {"test", "nightly", "lint", "docs"}
    promised = set(loaded("extras").EXTRAS)
    assert promised == set(PROJECT["optional-dependencies"]) - for_developers


@pytest.mark.parametrize("name", ["ci", "release", "nightly"])
def test_workflows_may_do_what_they_need_and_run_what_was_read(name):
    text = (ROOT / ".github" / "workflows" / f"{name}.yml").read_text()
    workflow = yaml.safe_load(text)
    assert workflow["permissions"] == {}
    rights = [job["permissions"] for job in workflow["jobs"].values()]
    if name != "release":
        assert all(each == {"contents": "read"} for each in rights)
    else:  # who may publish may not write here, and the other way round
        assert workflow["jobs"]["build"]["needs"] == "gate"
        assert rights[2:] == [{"id-token": "write"}, {"contents": "write"}]
    jobs = workflow["jobs"].values()
    for step in (step for job in jobs for step in job.get("steps", [])):
        action, _, version = step.get("uses", "").partition("@")
        assert not action or re.fullmatch("[0-9a-f]{40}", version), step
        if action == "actions/checkout":
            assert step["with"]["persist-credentials"] is False


def test_notes_of_a_version_are_its_section_and_need_a_date():
    notes = loaded("notes").notes
    text = (
        "## [Unreleased]\n\nno\n\n## [1.0.0] - 2030-01-02\n\nyes\n\n## [0.9] - soon\n"
    )
    assert notes("1.0.0", text) == "yes"
    with pytest.raises(ValueError, match="not by a day"):
        notes("0.9", text)
    with pytest.raises(ValueError, match="no section"):
        notes("2.0.0", text)
