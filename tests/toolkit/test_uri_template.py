"""URI templates: what they match, and what is refused."""

import pytest

from holdfast.model.errors import HoldfastError
from holdfast.toolkit.uri_template import read_template
from tests.cost import least_cpu_seconds

pytestmark = pytest.mark.promise("KIT-23")


@pytest.mark.parametrize(
    ("template", "uri", "values"),
    [
        ("shop://{id}", "shop://7", {"id": "7"}),
        ("shop://{id}", "shop://a%20b", {"id": "a b"}),
        ("shop://{id}", "shop://", None),
        ("shop://{id}", "shop://7/8", None),
        ("shop://{id}", "shop://7?x=1", None),
        ("shop://{id}", "other://7", None),
        ("shop://{shop}/orders/{id}", "shop://main/orders/7", {"shop": "main", "id": "7"}),
        ("shop://{shop}/orders/{id}", "shop://main/orders/", None),
        ("doc://{name}.{kind}", "doc://a.b.md", {"name": "a", "kind": "b.md"}),
        ("doc://{name}-b", "doc://foo-bar-b", {"name": "foo-bar"}),
        ("file://{+path}", "file://a/b/c.txt", {"path": "a/b/c.txt"}),
        ("file://{path*}", "file://a/b%2Fc.txt", {"path": "a/b/c.txt"}),
        ("repo://{repo}/{+path}/raw", "repo://x/a/b/raw", {"repo": "x", "path": "a/b"}),
        ("repo://{+path}@{ref}", "repo://a/b@main", {"path": "a/b", "ref": "main"}),
        ("repo://{+path}@{ref}", "repo://a/b@", None),
        ("find://it{?q,limit}", "find://it?q=a+b&limit=2", {"q": "a b", "limit": "2"}),
        ("find://it{?q,limit}", "find://it", {}),
        ("find://{kind}{?q}", "find://all?q=x&other=y", {"kind": "all", "q": "x"}),
    ],
)
def test_template_matches(template: str, uri: str, values: dict[str, str] | None):
    assert read_template(template).match(uri) == values


@pytest.mark.parametrize(
    ("template", "uri"),
    [
        ("doc://{name}", "doc://.."),
        ("doc://{name}", "doc://%2e%2e"),
        ("doc://{name}", "doc://..%2Fsecret"),
        ("doc://{name}", "doc://a%2Fb"),
        ("doc://{name}", "doc://a%5Cb"),
        ("doc://{name}", "doc://a%00"),
        ("doc://{name}", "doc://%ff"),
        ("doc://{+path}", "doc://a/../../secret"),
        ("doc://{+path}", "doc://a/%2e%2e/secret"),
        ("doc://{+path}", "doc:///etc/passwd"),
        ("doc://{+path}", "doc://%2Fetc/passwd"),
    ],
)
def test_value_that_could_leave_its_place_in_a_path_does_not_match(template: str, uri: str):
    assert read_template(template).match(uri) is None


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("orders", "not a URI"),
        ("shop://a b", "not a URI"),
        ("shop://{id", "braces"),
        ("shop://{id}}", "braces"),
        ("shop://{a}{b}", "text between two variables"),
        ("shop://{a}/{a}", "twice"),
        ("shop://{+a}/x/{+b}", "only one variable"),
        ("shop://{#a}", "not supported"),
        ("shop://{/a}", "not supported"),
        ("shop://{a,b}", "not supported"),
        ("shop://{?a}/b", "nothing may follow"),
        ("shop://{?a}{b}", "nothing may follow"),
    ],
)
def test_template_that_is_not_supported_is_refused(template: str, problem: str):
    with pytest.raises(HoldfastError, match=problem):
        read_template(template)


@pytest.mark.parametrize("text", ["a-" * 2000, "/" * 4000, "-" * 4000, "%2e" * 1300])
def test_matching_takes_little_time(text: str):
    template = read_template("x://{a}-{b}-{c}-{d}/{+e}-{f}-{g}")

    assert least_cpu_seconds(lambda: template.match(f"x://{text}")) < 0.05
