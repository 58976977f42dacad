"""Show a page to a browser that opens a broker's address: what this is, and where to continue.

It loads nothing from elsewhere and has no script, so it works where a broker has no way out.
"""

from html import escape

from tidemark_broker.http.broker_view import BrokerView

_LINKS = (
    ("/openapi.json", "the whole API (OpenAPI 3.1)"),
    ("/topics", "topics"),
    ("/brokers", "brokers of the pool"),
    ("/groups", "consumer groups of the pool"),
    ("/metrics", "metrics (Prometheus)"),
    ("/readyz", "whether this broker serves"),
    ("/healthz", "which broker answers here"),
)
_STYLE = "body{font:16px/1.5 system-ui,sans-serif;max-width:40em;margin:2em auto;padding:0 1em}"


def start_page(view: BrokerView) -> str:
    items = "".join(
        f'<li><a href="{path}"><code>{path}</code></a>: {text}</li>' for path, text in _LINKS
    )
    name = f"Tidemark broker {view.broker_id}"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{name}</title>'
        '<meta name="viewport" content="width=device-width">'
        f"<style>{_STYLE}</style><h1>{name}</h1>"
        f"<p>It serves topics of the broker pool <b>{escape(view.pool)}</b>: over HTTP here, over"
        f" the Kafka protocol at its Kafka port.</p><ul>{items}</ul>"
        "<p>Read records: <code>curl -L"
        " 'ADDRESS/topics/TOPIC/partitions/0/records?offset=earliest'</code></p></html>"
    )
