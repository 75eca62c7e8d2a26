import pytest

from holdfast.model.similar_names import suggest_tool


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("orbit.task.add", " Did you mean 'task_add'?"),
        ("tasks__task_list", " Did you mean 'task_list'?"),
        ("task_lst", " Did you mean 'task_list'?"),
        ("weather", ""),
    ],
)
def test_a_tool_is_suggested_also_for_a_name_with_another_hosts_prefix(name: str, suggestion: str):
    assert suggest_tool(name, ["task_add", "task_list"]) == suggestion
