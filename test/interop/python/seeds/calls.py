"""Makes the calls that the introduction describes whose client is beside this, by HTTP POST, and prints each answer as one line of JSON.

Usage: calls.py URL
"""
import json
import sys

import requests

url = sys.argv[1]
session = requests.Session()


def show(response):
    body = response.json() if response.content else None
    print(json.dumps([response.status_code, body]))


def call(method, params, **members):
    show(session.post(url, json={"jsonrpc": "2.0", "method": method, "params": params, **members}))


call("subtract", [42, 23], id=1)
call("subtract", {"a": 42, "b": 23}, id=2)
call("echo", ["Hello"], id=1)
call("nobody", [], id=1)
call("update", [1, 2, 3])
# The introduction takes `id: null` for a notification; the specification answers it.
call("update", [1, 2, 3], id=None)
show(
    session.post(
        url,
        json=[
            {"jsonrpc": "2.0", "method": "sum", "params": [1, 2], "id": 1},
            {"jsonrpc": "2.0", "method": "notify", "params": ["hello"]},
            {"jsonrpc": "2.0", "method": "getData", "id": 2},
        ],
    )
)
show(session.post(url, data='{"jsonrpc": "2.0", "method"', headers={"Content-Type": "application/json"}))
