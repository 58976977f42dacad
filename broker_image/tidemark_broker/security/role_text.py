"""Say which Role rule allows an access, for errors and documentation."""

from tidemark_protocol.access_messages import Access, Principal

API_GROUP = "tidemark.dev"


def rule_of(access: Access) -> str:
    """Return the rule of a Role that allows the access, as one line of YAML."""
    names = f", resourceNames: [{_quoted(access.name)}]" if access.name else ""
    return (
        f"{{apiGroups: [{API_GROUP}], resources: [{access.kind.value}]{names},"
        f" verbs: [{access.verb.value}]}}"
    )


def role_of(access: Access, namespace: str) -> str:
    """Return a Role that allows the access, as YAML."""
    name = f"tidemark-{access.verb.value}-{access.kind.value}"
    return (
        "apiVersion: rbac.authorization.k8s.io/v1\n"
        "kind: Role\n"
        f"metadata: {{name: {name}, namespace: {namespace or 'default'}}}\n"
        f"rules:\n  - {rule_of(access)}\n"
    )


def resource_of(access: Access) -> str:
    """Return the resource as `kubectl auth can-i` takes it."""
    name = f"/{access.name}" if access.name else ""
    return f"{access.kind.value}.{API_GROUP}{name}"


def denial(principal: Principal, access: Access, namespace: str) -> str:
    """Return why an access is denied, and the rule that would allow it."""
    return (
        f"{principal.name} may not {access.verb.value} {resource_of(access)}"
        f" in namespace {namespace or 'default'}: bind a Role with this rule:"
        f" {rule_of(access)}"
    )


def _quoted(name: str) -> str:
    is_plain = name.replace("-", "").replace("_", "").isalnum() and not name.isdecimal()
    return name if is_plain else '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
