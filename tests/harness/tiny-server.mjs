// A line that starts an MCP server over standard input and output with one tool, `hello`: for gateways in sandboxes, without a package.
const program = `
import json, os, sys
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m: continue
    results = {"initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "t", "version": "1"}},
        "tools/list": {"tools": [{"name": "hello", "description": "a test", "inputSchema": {"type": "object"}}]},
        "tools/call": {"content": [{"type": "text", "text": "hello " + os.environ.get("WHO", "")}]}}
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": results.get(m["method"], {})}), flush=True)
`
export const tinyServer = `exec python3 -c '${program}'`
