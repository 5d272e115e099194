"""A server on this machine, and what OpenML and UCI would have it say."""

import hashlib
import http.server
import io
import json
import threading
import zipfile

import numpy as np

from natgrad.datasets._registry import KNOWN


class Server:
    """Pages by their path; half of those that are `cut`, nothing of the `silent`."""

    def __init__(self) -> None:
        self.pages: dict[str, bytes] = {}
        self.cut: set[str] = set()
        self.silent: set[str] = set()
        self.is_over = threading.Event()
        self.asked: list[str] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                if self.path in outer.silent:
                    outer.is_over.wait(10)
                    return
                page = outer.pages.get(self.path)
                if page is None:
                    self.send_error(404)
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(len(page)))
                self.end_headers()
                half = len(page) // 2 if self.path in outer.cut else len(page)
                self.wfile.write(page[:half])

            def log_message(self, *_: object) -> None:
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = False  # and so waited for at the end
        self.port = self.http.server_address[1]
        threading.Thread(target=self.http.serve_forever, args=(0.01,)).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self.is_over.set()
        self.http.shutdown()
        self.http.server_close()


def on_openml(
    server: Server,
    name: str,
    columns: dict[str, np.ndarray],
    targets: tuple[str, ...] = ("target",),
    nominal: tuple[str, ...] = (),
) -> None:
    """Has a server answer for a data set as OpenML does."""
    number = KNOWN[name].openml
    kinds, features = [], []
    for place, column in enumerate(columns):
        is_nominal = column in nominal
        values = ",".join(sorted(set(map(str, columns[column]))))
        kinds.append(
            f"@ATTRIBUTE '{column}' {f'{{{values}}}' if is_nominal else 'REAL'}"
        )
        features.append(
            {
                "index": str(place),
                "name": column,
                "data_type": "nominal" if is_nominal else "numeric",
                "is_target": str(column in targets).lower(),
                "is_ignore": "false",
                "is_row_identifier": "false",
                "number_of_missing_values": "0",
            }
        )
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    lines = [",".join(map(str, row)) for row in rows]
    arff = "\n".join([f"@RELATION {name}", *kinds, "@DATA", *lines, ""]).encode()
    description = {
        "id": str(number),
        "name": name,
        "version": "1",
        "description": "",
        "format": "ARFF",
        "status": "active",
        "file_id": str(number),
        "url": f"https://www.openml.org/data/v1/download/{number}",
        "md5_checksum": hashlib.md5(arff).hexdigest(),
    }
    quality = [{"name": "NumberOfInstances", "value": f"{len(lines)}.0"}]
    api = "/api/v1/json/data"
    server.pages |= {
        f"{api}/{number}": json.dumps({"data_set_description": description}).encode(),
        f"{api}/features/{number}": json.dumps(
            {"data_features": {"feature": features}}
        ).encode(),
        f"{api}/qualities/{number}": json.dumps(
            {"data_qualities": {"quality": quality}}
        ).encode(),
        f"/data/v1/download/{number}": arff,
    }


def on_uci(server: Server, name: str, text: str) -> str:
    """Has a server have a text where UCI has a data set, and says the address."""
    known = KNOWN[name]
    assert known.url is not None
    page = text.encode()
    if known.member:
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
            packed.writestr("Readme.txt", "What this is.")
            packed.writestr(known.member, page)
        page = archive.getvalue()
    server.pages[known.url.removeprefix("https://archive.ics.uci.edu")] = page
    return known.url
