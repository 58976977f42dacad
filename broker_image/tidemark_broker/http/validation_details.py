"""Say in this API's words what Pydantic found wrong in a request: what was expected and found.

Pydantic's own sentences have another form, and change with its releases.
"""

import json
from collections.abc import Mapping

MAX_FOUND = 40  # characters of a value in a detail

_EXPECTED: Mapping[str, str] = {  # by Pydantic's type of error; braces are of its context
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "dict_type": "an object",
    "extra_forbidden": "only known fields",
    "float_parsing": "a number",
    "float_type": "a number",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a smaller whole number",
    "int_type": "a whole number",
    "json_invalid": "JSON",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "list_type": "a list",
    "literal_error": "{expected}",
    "missing": "a value",
    "model_attributes_type": "an object",
    "model_type": "an object",
    "string_pattern_mismatch": "a string that matches {pattern}",
    "string_too_long": "at most {max_length} characters",
    "string_too_short": "at least {min_length} characters",
    "string_type": "a string",
    "too_long": "at most {max_length} entries",
    "too_short": "at least {min_length} entries",
}
_PYDANTICS_BEGINNING = "Input should be "


def validation_detail(error: Mapping[str, object], *within: str) -> str:
    """Return `<place>: expected X, found Y` of an entry of Pydantic's `errors()`."""
    location = error.get("loc")
    inner = [str(part) for part in location] if isinstance(location, (tuple, list)) else []
    place = ": ".join([*within, *filter(None, [".".join(inner)])])
    return f"{place}: expected {_expected(error)}, found {_found(error)}"


def _expected(error: Mapping[str, object]) -> str:
    context = error.get("ctx")
    template = _EXPECTED.get(str(error.get("type")))
    if template is not None:
        try:
            return template.format_map(context if isinstance(context, dict) else {})
        except KeyError:  # a release of Pydantic with other names
            pass
    message = str(error.get("msg", ""))
    if message.startswith(_PYDANTICS_BEGINNING):
        return message.removeprefix(_PYDANTICS_BEGINNING)
    return "a valid value"


def _found(error: Mapping[str, object]) -> str:
    location = error.get("loc")
    if error.get("type") == "missing":
        return "none"
    if error.get("type") == "extra_forbidden" and isinstance(location, (tuple, list)):
        return repr(str(location[-1])[:MAX_FOUND])
    value = error.get("input")
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, str):
        return repr(value[:MAX_FOUND])
    return json.dumps(value, default=str)[:MAX_FOUND]
