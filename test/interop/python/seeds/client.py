import requests

payload = {
    "jsonrpc": "2.0",
    "method": "subtract",
    "params": [42, 23],
    "id": 1
}

response = requests.post("http://localhost:5000/rpc", json=payload).json()
print(response["result"])  # 输出 19
