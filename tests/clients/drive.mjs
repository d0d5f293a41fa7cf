// SPDX-License-Identifier: Apache-2.0
// npm's MCP clients drive every tool: drive.mjs PACKAGE MODE CLOCHE [ARGUMENT...] starts `cloche mcp`, drive.mjs PACKAGE MODE URL talks to a
// service with the key in KEY; PACKAGE is sdk or client, MODE legacy or auto (client only). Run by test_mcp_clients.py beside the packages; prints one JSON object of what it saw.
const [which, mode, command, ...args] = process.argv.slice(2);
const { Client } = await import(which === 'sdk' ? '@modelcontextprotocol/sdk/client/index.js' : '@modelcontextprotocol/client');
const { StdioClientTransport } = await import(which === 'sdk' ? '@modelcontextprotocol/sdk/client/stdio.js' : '@modelcontextprotocol/client/stdio');
const PLOT = `
import base64
open('/output/plot.png', 'wb').write(base64.b64decode(
    'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='))
open('/output/t.csv', 'w').write('1,2')
print(6 * 7)
`;
const saw = {}, told = [];
const client = new Client({ name: 'drive', version: '1' }, which === 'sdk' ? {} : { versionNegotiation: { mode } });
const { StreamableHTTPClientTransport } = await import(
  which === 'sdk' ? '@modelcontextprotocol/sdk/client/streamableHttp.js' : '@modelcontextprotocol/client');
const transport = command.startsWith('http')
  ? new StreamableHTTPClientTransport(new URL(command), { requestInit: { headers: { Authorization: `Bearer ${process.env.KEY}` } } })
  : new StdioClientTransport({ command, args, env: { ...process.env }, stderr: 'inherit' });
await client.connect(transport);

const request = (name, args, options) =>
  which === 'sdk' ? client.callTool({ name, arguments: args }, undefined, options) : client.callTool({ name, arguments: args }, options);
async function call(name, args, options) {
  const r = await request(name, args, options);
  saw[name] = { error: r.isError, structured: r.structuredContent, kinds: r.content.map((c) => c.type), text: r.content[0].text };
  return r;
}

saw.revision = which === 'sdk' ? '2025-11-25' : client.getNegotiatedProtocolVersion();
saw.tools = (await client.listTools()).tools.map((t) => t.name); // compiles the output schemas: results are held against them
await call('run_python', { code: PLOT });
const table = (await client.listResources()).resources.find((r) => r.name === 't.csv');
saw.resource = (await client.readResource({ uri: table.uri })).contents.map((c) => c.text);
await call('run_node', { code: 'console.log(2 + 2)' });
await call('run_shell', { command: 'sleep 2.3; echo err >&2; exit 3' }, { onprogress: (p) => told.push([p.progress, p.total, p.message]) });
const wrote = await call('write_file', { path: 'a.py', content: "print('kept')" });
const box = wrote.structuredContent ? { sandbox: wrote.structuredContent.sandbox } : {};
await call('read_file', { path: 'a.py', ...box });
await call('list_files', box);
await call('install_packages', { packages: ['wheelhouse-test'], ...box });
if (wrote.structuredContent) {
  const use = { code: 'import wheelhouse_test; print(wheelhouse_test.answer)', ...box };
  saw.imported = (await request('run_python', use)).structuredContent.stdout;
}
await call('list_sandboxes', {});
await call('reset', box);
const abort = new AbortController();
setTimeout(() => abort.abort(), 700);
try {
  await request('run_shell', { command: `exec sleep ${process.env.MARK}` }, { signal: abort.signal });
} catch {
  saw.cancelled = true;
}
saw.parallel = (await Promise.all([0, 1, 2, 3, 4].map((i) => request('run_python', { code: `print(${i})` })))).map((r) => r.structuredContent.stdout);
saw.wrong = (await request('run_python', { cod: 1 })).isError;
try {
  await request('no_such_tool', {});
} catch (e) {
  saw.unknown = String(e);
}
saw.progress = told;
await client.close();
console.log(JSON.stringify(saw));
