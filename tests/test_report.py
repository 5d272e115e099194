"""Laws of the report: one page that holds all it shows, and runs nothing."""

import base64
import copy
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import matplotlib
import pytest

from natgrad import metrics, report
from natgrad._cli import evaluating
from tests.estimators import KINDS, NASTY, fitted, table
from tests.variants import variants


PICTURES = {
    "one": ["fit", "predicted", "calibration", "residuals", "history"],
    "three": ["predicted", "calibration", "residuals", "lengthscales", "history"],
    "counts": ["fit", "predicted", "calibration", "residuals", "history"],
    "two classes": [
        "boundary",
        "predicted",
        "calibration",
        "residuals",
        "lengthscales",
        "history",
    ],
    "classes": ["boundary", "predicted", "calibration", "lengthscales", "history"],
    "grades": ["fit", "predicted", "calibration", "residuals", "history"],
}

LIKELIHOODS = {"classes": "softmax", "grades": "ordinal"}


class Reader(HTMLParser):
    """Keeps the tags of a page, and sees that each is closed."""

    VOID = ("meta", "img")

    def __init__(self, page: str):
        super().__init__()
        self.open, self.tags, self.images = [], set(), []
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "img":
            self.images.append(dict(attrs)["src"])
        assert not {name for name, _ in attrs} & {"href", "onload", "onerror"}

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module", params=variants(KINDS, ["one", "classes"]))
def written(request, tmp_path_factory):
    kind = request.param
    path = tmp_path_factory.mktemp("report") / "page.html"
    title = "A <script>alert(1)</script> & more"
    assert report.write(fitted(kind), *table(kind), path, title) == path
    return kind, path.read_text(encoding="utf-8")


def test_the_page_is_whole_and_needs_nothing_from_outside(written):
    kind, page = written
    reader = Reader(page)
    assert not reader.tags & {"script", "link", "iframe", "b", "i"}
    assert "<script" not in page and "http://" not in page and "https://" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; more" in page
    start = "data:image/svg+xml;base64,"
    assert len(reader.images) == len(PICTURES[kind])
    for image in reader.images:
        assert image.startswith(start)
        svg = base64.b64decode(image.removeprefix(start))
        assert ElementTree.fromstring(svg).tag.endswith("svg")
        assert b"<script" not in svg


def test_the_pictures_that_apply_are_there(written):
    kind, page = written
    captions = re.findall("<figcaption>(.*?)</figcaption>", page)
    assert captions == [report.CAPTIONS[name] for name in PICTURES[kind]]


@pytest.mark.parametrize("kind", LIKELIHOODS)
def test_the_command_draws_the_pictures_of_the_report(kind, tmp_path):
    x, y = table(kind)
    x.assign(**{y.name: y}).to_csv(tmp_path / "rows.csv", index=False)
    beside = {"target": y.name, "likelihood": LIKELIHOODS[kind], "rows": len(y)}
    fitted(kind).save(tmp_path / "model", metadata=beside)
    with matplotlib.rc_context():
        evaluating.plot(
            str(tmp_path / "model"), str(tmp_path / "rows.csv"), str(tmp_path / "out")
        )
    drawn = {path.stem for path in (tmp_path / "out").iterdir()}
    assert drawn == {*PICTURES[kind]}


def test_numbers_configuration_and_versions_are_there(written):
    kind, page = written
    for name in metrics.evaluate(fitted(kind), *table(kind)):
        assert report.MEANINGS[name] in page
    for name in ("max_iter", "jax", "scikit-learn", "inducing inputs"):
        assert f"<th>{name}</th>" in page
    assert "60 rows" in page
    if kind != "grades":
        assert NASTY.split()[0].replace("<", "&lt;").replace(">", "&gt;") in page


def test_a_fit_that_has_not_converged_says_so_before_the_numbers(tmp_path):
    estimator = copy.copy(fitted("one"))
    for is_converged in (True, False):
        estimator.converged_, estimator.message_ = is_converged, "2 steps <of> 9"
        path = report.write(estimator, *table("one"), tmp_path / "page.html")
        top = path.read_text(encoding="utf-8").split("<h2>Quality")[0]
        assert ("Not converged: 2 steps &lt;of&gt; 9" in top) == (not is_converged)


def test_pictures_of_many_rows_say_that_they_are_of_some(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "PICTURED", 30)
    path = report.write(fitted("one"), *table("one"), tmp_path / "page.html")
    page = path.read_text(encoding="utf-8")
    assert "30 rows, drawn at random." in page
    assert "<h1>GPRegressor: yield &amp; &lt;loss&gt;</h1>" in page
