"""What server.py takes from uvicorn, so that an upgrade shows what to read again."""

import ast
import inspect
from pathlib import Path

import pytest
import uvicorn
from tidemark_broker.http import server
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

BROKER = Path(server.__file__).parents[1]
OVERRIDDEN = {
    "_Server": {"__init__", "capture_signals", "main_loop", "startup"},
    "LimitedHttpProtocol": {
        "connection_made", "connection_lost", "data_received", "on_message_begin",
        "on_headers_complete", "pause_writing", "resume_writing", "send_400_response",
    },
}  # fmt: skip
READ: dict[str, set[str]] = {
    "_Server": {"lifespan", "server_state", "servers"},
    "LimitedHttpProtocol": {"connections", "loop", "scope", "server", "shutdown", "transport"},
}
CLASSES: dict[str, type] = {"_Server": uvicorn.Server, "LimitedHttpProtocol": HttpToolsProtocol}


def class_of(name: str) -> ast.ClassDef:
    tree = ast.parse(Path(server.__file__).read_text())
    return next(
        node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == name
    )


def own_names(of_class: ast.ClassDef) -> set[str]:
    """Names that the class defines or assigns itself."""
    methods = ast.FunctionDef | ast.AsyncFunctionDef
    names = {node.name for node in of_class.body if isinstance(node, methods)}
    for node in ast.walk(of_class):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


@pytest.mark.parametrize("name", list(CLASSES))
def test_attributes_of_uvicorn_are_named(name: str) -> None:
    of_class = class_of(name)
    methods = {
        node.name
        for node in of_class.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    used = {
        node.attr
        for node in ast.walk(of_class)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }
    base = CLASSES[name]
    assert {method for method in methods if hasattr(base, method)} == OVERRIDDEN[name]
    assert used - own_names(of_class) == READ[name]


def test_uvicorn_sets_what_is_read() -> None:
    source = inspect.getsource(HttpToolsProtocol)
    for attribute in READ["LimitedHttpProtocol"]:
        assert f"self.{attribute}" in source or f"def {attribute}(self" in source
    assert "self.servers" in inspect.getsource(uvicorn.Server)  # which is set here too


def test_only_the_server_imports_uvicorn() -> None:
    importing = [path.name for path in BROKER.rglob("*.py") if "import uvicorn" in path.read_text()]
    assert importing == ["server.py"]
