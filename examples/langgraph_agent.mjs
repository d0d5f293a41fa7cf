// SPDX-License-Identifier: Apache-2.0
// A LangChain and LangGraph agent in JavaScript with cloche's tools over MCP.
//
//   npm install langchain @langchain/core @langchain/langgraph @langchain/mcp-adapters @langchain/openai; export OPENAI_API_KEY=... MODEL=...
//   node langgraph_agent.mjs "What is the 30th Fibonacci number? Use code."
import { MultiServerMCPClient } from '@langchain/mcp-adapters';
import { ChatOpenAI } from '@langchain/openai';
import { createAgent } from 'langchain';

const { MODEL, OPENAI_BASE_URL } = process.env;
const client = new MultiServerMCPClient({ mcpServers: { cloche: { transport: 'stdio', command: 'cloche', args: ['mcp'], env: process.env } } });
try {
  const model = new ChatOpenAI({ model: MODEL, configuration: { baseURL: OPENAI_BASE_URL } });
  const agent = createAgent({ model, tools: await client.getTools() });
  const answer = await agent.invoke({ messages: [{ role: 'user', content: process.argv[2] }] });
  console.log(answer.messages.at(-1).text || '[no text in the final message]');
} finally {
  await client.close();
}
