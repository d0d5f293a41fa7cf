/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tool.h - the tools a model may call: one table, from which the MCP server's tools/list, `cloche tools`
 * for the providers' own formats, and the check of what a model sent are made.
 *
 * What a model sends is hostile: every argument is checked here against the row that describes it, and the
 * sentence that refuses one is meant for the model.
 */
#ifndef AGENT_TOOL_H
#define AGENT_TOOL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "agent/package.h"
#include "sandbox/spec.h"

enum tool_id {
	TOOL_RUN_PYTHON,
	TOOL_RUN_NODE,
	TOOL_RUN_SHELL,
	TOOL_WRITE_FILE,
	TOOL_READ_FILE,
	TOOL_LIST_FILES,
	TOOL_INSTALL_PACKAGES,
	TOOL_LIST_SANDBOXES,
	TOOL_RESET,
	TOOL_COUNT
};

/* What of a tool's description follows from how the program was started. */
struct tool_view {
	bool kept;          /* there are kept sandboxes, and so the argument "sandbox" */
	bool by_id;         /* they are always named: no sandbox belongs to the connection */
	bool session;       /* run_* without a sandbox run in the session's own */
	bool open_world;    /* programs may reach a network */
	bool text_only;     /* the model gets texts, no images */
	double timeout_s;   /* of one run; also the most a model may ask for */
	size_t memory_mib;  /* of one sandbox; 0: not known here */
	const char *rename; /* the name of the only tool, or NULL */
};

struct tool {
	const char *name;
	const char *title;
	const char *help;       /* first part of the description */
	enum language language; /* LANGUAGE_NONE: no run_* */
	bool read_only, destructive, idempotent;
	unsigned arguments, required; /* bit sets of tool_argument rows */
	bool needs_network;           /* of no use without one */
};

extern const struct tool tools[TOOL_COUNT];

/* The row of this name, or TOOL_COUNT. */
enum tool_id tool_find(const char *name);
static inline bool tool_runs(enum tool_id id)
{
	return tools[id].language != LANGUAGE_NONE;
}

/* How much text a call may carry in all, and what read_file gives at once. */
enum { TOOL_CODE_BYTES = 2 << 20, TOOL_READ_BYTES = 256 << 10, TOOL_PATH_BYTES = 1024 };

/* What a model sent, checked. Strings belong to the JSON; content may hold NUL characters. */
struct tool_call {
	enum tool_id id;
	const char *code; /* or the command */
	size_t code_size;
	const char *path, *sandbox, *content;
	size_t content_size;
	bool is_base64;
	double timeout_s; /* 0: not said */
	long long offset, limit;
	const json_t *packages;
	const struct package_manager *manager;
};

/* Read arguments (an object, or NULL for none). -1: e->text is for the model, in whole sentences. */
int tool_read(struct tool_call *ret, enum tool_id id, const json_t *arguments,
	      const struct tool_view *view, struct err *e) must_check;

/* The description, and the schemas of what goes in and comes out; new references, NULL without memory. */
char *tool_description(enum tool_id id, const struct tool_view *view) must_check;
json_t *tool_input_schema(enum tool_id id, const struct tool_view *view) must_check;
json_t *tool_output_schema(enum tool_id id) must_check;
json_t *tool_annotations(enum tool_id id, const struct tool_view *view) must_check;

/* The formats of `cloche tools`: how a provider wants to be told of tools. */
struct tool_format {
	const char *name;
	/* The whole list from some tools. */
	json_t *(*list)(const enum tool_id *ids, size_t count, const struct tool_view *view);
};

extern const struct tool_format tool_formats[];
extern const size_t tool_format_count;

/* One tool as MCP lists it. by_revision: 0 is the oldest, without annotations, titles and output schemas. */
enum { TOOL_ANNOTATIONS = 1, TOOL_OUTPUT_SCHEMA = 2 };
json_t *tool_mcp(enum tool_id id, const struct tool_view *view, unsigned features) must_check;

#endif
