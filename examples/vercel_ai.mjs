// SPDX-License-Identifier: Apache-2.0
// The Vercel AI SDK with cloche's tools over MCP.
//
//   npm install ai @ai-sdk/mcp @ai-sdk/openai-compatible; export OPENAI_API_KEY=... MODEL=... OPENAI_BASE_URL=https://api.openai.com/v1
//   node vercel_ai.mjs "What is the 30th Fibonacci number? Use code."
import { createMCPClient } from '@ai-sdk/mcp';
import { Experimental_StdioMCPTransport as Stdio } from '@ai-sdk/mcp/mcp-stdio';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, stepCountIs } from 'ai';

const { MODEL, OPENAI_API_KEY, OPENAI_BASE_URL } = process.env;
const provider = createOpenAICompatible({ name: 'openai', apiKey: OPENAI_API_KEY, baseURL: OPENAI_BASE_URL });
const cloche = await createMCPClient({ transport: new Stdio({ command: 'cloche', args: ['mcp'], env: process.env }) });
try {
  const { text } = await generateText({ model: provider(MODEL), tools: await cloche.tools(), stopWhen: stepCountIs(20), prompt: process.argv[2] });
  console.log(text || '[no text in the final message]');
} finally {
  await cloche.close();
}
