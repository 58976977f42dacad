"""Read the fields of an object one by one, so that each wrong one gets its sentence. Pure.

`msgspec.convert` stops at the first wrong field; a person who corrects a file wants all of them.
"""

from typing import Annotated, Any, NamedTuple, get_args, get_origin

import msgspec


class Problem(NamedTuple):
    place: str  # of the field
    sentence: str


def readable_fields(
    document: object, of: type[msgspec.Struct], place: str
) -> tuple[dict[str, Any], list[Problem]]:
    """Return the fields of a struct that can be read, and a problem for each other one.

    An object of a list that has a problem is None in it, so that the others keep their numbers.
    """
    if not isinstance(document, dict):
        return {}, [Problem(place, _sentence(place, f"Expected `object`, got {document!r:.60}"))]
    found: dict[str, Any] = {}
    problems: list[Problem] = []
    fields = {field.encode_name: field for field in msgspec.structs.fields(of)}
    for name, value in document.items():
        if name in fields:
            within = f"{place}.{name}" if place else str(name)
            _read(value, fields[name].type, within, (found, name), problems)
        elif of.__struct_config__.forbid_unknown_fields:
            text = f"Object contains unknown field `{name!s:.60}`"
            problems.append(Problem(f"{place}.{name}", _sentence(place, text)))
    for name, field in fields.items():
        if field.required and name not in document:
            text = f"Object missing required field `{name}`"
            within = f"{place}.{name}" if place else name
            problems.append(Problem(within, _sentence(place, text)))
    return found, problems


def _read(
    value: object,
    type_: Any,
    place: str,
    into: tuple[dict[str, Any], str],
    problems: list[Problem],
) -> None:
    found, name = into
    struct = _struct_in_tuple(type_)
    if struct is not None and isinstance(value, list):
        found[name] = []
        limits = [each for each in get_args(type_)[1:] if isinstance(each, msgspec.Meta)]
        most = next((each.max_length for each in limits if each.max_length is not None), None)
        if most is not None and len(value) > most:
            text = f"Expected `array` of length <= {most}, got {len(value)}"
            problems.append(Problem(place, _sentence(place, text)))
            del found[name]
            return
        for number, each in enumerate(value):
            fields, wrong = readable_fields(each, struct, f"{place}[{number}]")
            found[name].append(None if wrong else fields)
            problems += wrong
        return
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        found[name], wrong = readable_fields(value, type_, place)
        problems += wrong
        return
    try:
        msgspec.convert(value, type_)
    except msgspec.ValidationError as error:
        text, _, _ = str(error).partition(" - at `$")
        problems.append(Problem(place, _sentence(place, text)))
    else:
        found[name] = value


def _struct_in_tuple(type_: Any) -> type[msgspec.Struct] | None:
    """Return the struct of `tuple[Struct, ...]`, also with limits (Annotated)."""
    if get_origin(type_) is Annotated:
        type_ = get_args(type_)[0]
    inner = get_args(type_)[:1] if get_origin(type_) is tuple else ()
    is_struct = bool(inner) and isinstance(inner[0], type) and issubclass(inner[0], msgspec.Struct)
    return inner[0] if is_struct else None


def _sentence(place: str, text: str) -> str:
    return f"{place or 'the object'}: {text[0].lower()}{text[1:]}"
