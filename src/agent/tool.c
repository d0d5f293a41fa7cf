/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/tool.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sandbox/result.h"

/* The arguments, by the bit that a tool's row names them with. */
enum argument {
	ARG_CODE = 1 << 0,
	ARG_COMMAND = 1 << 1,
	ARG_TIMEOUT = 1 << 2,
	ARG_SANDBOX = 1 << 3,
	ARG_PATH = 1 << 4,
	ARG_CONTENT = 1 << 5,
	ARG_ENCODING = 1 << 6,
	ARG_OFFSET = 1 << 7,
	ARG_LIMIT = 1 << 8,
	ARG_PACKAGES = 1 << 9,
	ARG_MANAGER = 1 << 10,
	ARG_COUNT = 11
};

enum kind { KIND_STRING, KIND_NUMBER, KIND_INTEGER, KIND_LIST };

static const char *const kind_names[] = {"string", "number", "integer", "array"};

static const struct argument_row {
	const char *name;
	enum kind kind;
	size_t max_bytes; /* of a string */
	bool raw;         /* may hold NUL characters */
	const char *help;
} rows[ARG_COUNT] = {
	{"code", KIND_STRING, TOOL_CODE_BYTES, false, "The program. Print what you want to see."},
	{"command", KIND_STRING, TOOL_CODE_BYTES, false, "The bash script."},
	{"timeout", KIND_NUMBER, 0, false,
	 "Seconds after which the run is ended; never more than the default."},
	{"sandbox", KIND_STRING, 64, false, NULL},
	{"path", KIND_STRING, TOOL_PATH_BYTES, false,
	 "Absolute, or relative to /workspace, which is where programs start."},
	{"content", KIND_STRING, 8 << 20, true, "What the file shall hold."},
	{"encoding", KIND_STRING, 16, false, "How content is written: utf-8 (default) or base64."},
	{"offset", KIND_INTEGER, 0, false, "The first byte to read. Default: 0."},
	{"limit", KIND_INTEGER, 0, false, "The most bytes to read, at most 262144 (default)."},
	{"packages", KIND_LIST, 0, false,
	 "Names, with or without a version: requests, numpy==1.26.4 (pip), lodash, "
	 "@types/node@^20 (npm). No URLs, paths or options."},
	{"manager", KIND_STRING, 16, false, "What installs them: pip (default) or npm."},
};

#define RUN_ARGUMENTS(what) (what) | ARG_TIMEOUT | ARG_SANDBOX, (what)

const struct tool tools[TOOL_COUNT] = {
	[TOOL_RUN_PYTHON] = {"run_python", "Run Python",
			     "Runs a Python 3 program in an isolated sandbox and returns its exit "
			     "code, stdout and stderr.",
			     LANGUAGE_PYTHON, false, true, false, RUN_ARGUMENTS(ARG_CODE)},
	[TOOL_RUN_NODE] = {"run_node", "Run JavaScript",
			   "Runs a JavaScript program with Node.js in an isolated sandbox and "
			   "returns its exit code, stdout and stderr.",
			   LANGUAGE_NODE, false, true, false, RUN_ARGUMENTS(ARG_CODE)},
	[TOOL_RUN_SHELL] = {"run_shell", "Run a shell script",
			    "Runs a bash script in an isolated sandbox and returns its exit code, "
			    "stdout and stderr.",
			    LANGUAGE_BASH, false, true, false, RUN_ARGUMENTS(ARG_COMMAND)},
	[TOOL_WRITE_FILE] = {"write_file", "Write a file",
			     "Writes a file in a kept sandbox; a file of that name is replaced, "
			     "missing folders are made.",
			     LANGUAGE_NONE, false, true, true,
			     ARG_PATH | ARG_CONTENT | ARG_ENCODING | ARG_SANDBOX,
			     ARG_PATH | ARG_CONTENT},
	[TOOL_READ_FILE] = {"read_file", "Read a file",
			    "Reads a file of a kept sandbox. Images are shown as images; other "
			    "bytes that are no text come as base64.",
			    LANGUAGE_NONE, true, false, true,
			    ARG_PATH | ARG_OFFSET | ARG_LIMIT | ARG_SANDBOX, ARG_PATH},
	[TOOL_LIST_FILES] = {"list_files", "List files",
			     "Lists a folder of a kept sandbox (default: /workspace).",
			     LANGUAGE_NONE, true, false, true, ARG_PATH | ARG_SANDBOX, 0},
	[TOOL_INSTALL_PACKAGES] = {"install_packages", "Install packages",
				   "Installs packages of Python (pip) or Node.js (npm) in a kept "
				   "sandbox, from the registries that its network policy allows.",
				   LANGUAGE_NONE, false, false, true,
				   ARG_PACKAGES | ARG_MANAGER | ARG_TIMEOUT | ARG_SANDBOX,
				   ARG_PACKAGES, true},
	[TOOL_LIST_SANDBOXES] = {"list_sandboxes", "List sandboxes",
				 "Lists the kept sandboxes that were made here, with their state.",
				 LANGUAGE_NONE, true, false, true, 0, 0},
	[TOOL_RESET] = {"reset", "Throw a kept sandbox away",
			"Ends a kept sandbox: its files and processes are gone.", LANGUAGE_NONE,
			false, true, true, ARG_SANDBOX, 0},
};

enum tool_id tool_find(const char *name)
{
	enum tool_id id = 0;

	while (id < TOOL_COUNT && strcmp(tools[id].name, name) != 0)
		id++;
	return id;
}

/* ---- what a model sent ---- */

static bool is_required(enum tool_id id, unsigned bit, const struct tool_view *view)
{
	if (bit == ARG_SANDBOX && view->by_id)
		return id == TOOL_READ_FILE || id == TOOL_LIST_FILES || id == TOOL_RESET;
	return tools[id].required & bit;
}

static bool has_argument(enum tool_id id, unsigned bit, const struct tool_view *view)
{
	return tools[id].arguments & bit && (bit != ARG_SANDBOX || view->kept);
}

static int check_value(const struct argument_row *row, const json_t *v, struct err *e)
{
	if (row->kind == KIND_STRING && !json_is_string(v))
		return err_set(e, 0, "The argument \"%s\" must be a string.", row->name);
	if (row->kind == KIND_NUMBER && !json_is_number(v))
		return err_set(e, 0, "The argument \"%s\" must be a number.", row->name);
	if (row->kind == KIND_INTEGER && (!json_is_integer(v) || json_integer_value(v) < 0))
		return err_set(e, 0, "The argument \"%s\" must be a whole number from 0.",
			       row->name);
	if (row->kind == KIND_LIST && !json_is_array(v))
		return err_set(e, 0, "The argument \"%s\" must be a list of strings.", row->name);
	if (row->kind != KIND_STRING)
		return 0;
	if (json_string_length(v) > row->max_bytes)
		return err_set(e, 0, "The argument \"%s\" has %zu bytes; the most is %zu.",
			       row->name, json_string_length(v), row->max_bytes);
	if (!row->raw && strlen(json_string_value(v)) != json_string_length(v))
		return err_set(e, 0, "The argument \"%s\" has a NUL character.", row->name);
	return 0;
}

static void keep_value(struct tool_call *c, unsigned bit, const json_t *v)
{
	switch (bit) {
	case ARG_CODE:
	case ARG_COMMAND:
		c->code = json_string_value(v);
		c->code_size = json_string_length(v);
		break;
	case ARG_TIMEOUT:
		c->timeout_s = json_number_value(v);
		break;
	case ARG_SANDBOX:
		c->sandbox = *json_string_value(v) ? json_string_value(v) : NULL;
		break;
	case ARG_PATH:
		c->path = json_string_value(v);
		break;
	case ARG_CONTENT:
		c->content = json_string_value(v);
		c->content_size = json_string_length(v);
		break;
	case ARG_ENCODING:
		c->is_base64 = strcmp(json_string_value(v), "base64") == 0;
		break;
	case ARG_OFFSET:
		c->offset = json_integer_value(v);
		break;
	case ARG_LIMIT:
		c->limit = json_integer_value(v);
		break;
	case ARG_PACKAGES:
		c->packages = v;
		break;
	}
}

static int check_packages(struct tool_call *c, const json_t *arguments, struct err *e)
{
	const char *manager = json_string_value(json_object_get(arguments, "manager"));

	c->manager = manager ? package_manager_find(manager) : package_managers;
	if (!c->manager)
		return err_set(e, 0, "The argument \"manager\" must be pip or npm.");
	return package_check(c->manager, c->packages, e);
}

static int check_together(struct tool_call *c, const json_t *arguments,
			  const struct tool_view *view, struct err *e)
{
	const json_t *timeout = json_object_get(arguments, "timeout");
	const char *encoding = json_string_value(json_object_get(arguments, "encoding"));

	if (json_is_number(timeout) && !(c->timeout_s > 0 && isfinite(c->timeout_s)))
		return err_set(e, 0, "The argument \"timeout\" must be more than 0 seconds.");
	if (c->timeout_s > view->timeout_s)
		c->timeout_s = view->timeout_s;
	if (encoding && strcmp(encoding, "base64") != 0 && strcmp(encoding, "utf-8") != 0)
		return err_set(e, 0, "The argument \"encoding\" must be utf-8 or base64.");
	if (c->path && !*c->path)
		return err_set(e, 0, "The argument \"path\" is empty.");
	if (c->limit == 0 || c->limit > TOOL_READ_BYTES)
		c->limit = TOOL_READ_BYTES;
	return c->packages ? check_packages(c, arguments, e) : 0;
}

/* Unknown names are an error: a model that invents one must not believe that it had an effect. */
static int check_names(enum tool_id id, const json_t *arguments, const struct tool_view *view,
		       struct err *e)
{
	const char *key;
	json_t *v;

	json_object_foreach((json_t *)(uintptr_t)arguments, key, v) {
		int i = 0;

		while (i < ARG_COUNT &&
		       !(strcmp(rows[i].name, key) == 0 && has_argument(id, 1u << i, view)))
			i++;
		if (i == ARG_COUNT)
			return err_set(e, 0, "%s has no argument \"%.60s\".", tools[id].name, key);
	}
	return 0;
}

int tool_read(struct tool_call *ret, enum tool_id id, const json_t *arguments,
	      const struct tool_view *view, struct err *e)
{
	*ret = (struct tool_call){.id = id};
	if (arguments && !json_is_object(arguments))
		return err_set(e, 0, "The arguments must be an object.");
	if (check_names(id, arguments, view, e) < 0)
		return -1;
	for (int i = 0; i < ARG_COUNT; i++) {
		const json_t *v = json_object_get(arguments, rows[i].name);

		if (!has_argument(id, 1u << i, view))
			continue;
		if (json_is_null(v)) /* what some models send for "not given" */
			v = NULL;
		if (!v && is_required(id, 1u << i, view))
			return err_set(e, 0, "%s needs the argument \"%s\" (%s).", tools[id].name,
				       rows[i].name, kind_names[rows[i].kind]);
		if (v && check_value(&rows[i], v, e) < 0)
			return -1;
		if (v)
			keep_value(ret, 1u << i, v);
	}
	return check_together(ret, arguments, view, e);
}

/* ---- what a model is told ---- */

static void tell_run(FILE *f, const struct tool_view *view)
{
	fprintf(f, " At most %g seconds", view->timeout_s);
	if (view->memory_mib)
		fprintf(f, " and %zu MiB of memory", view->memory_mib);
	fprintf(f, "%s.", view->open_world ? "" : "; no network");
	if (!view->kept) {
		fprintf(f, " Every call gets a new, empty sandbox that is thrown away afterwards: "
			   "nothing is kept between calls.");
	} else if (view->session) {
		fprintf(f, " It runs in this session's kept sandbox: files in /workspace stay for "
			   "the next call, processes and variables do not.");
	} else {
		fprintf(f, " Every call gets a new, empty sandbox that is thrown away afterwards, "
			   "unless \"sandbox\" names a kept one, where files stay.");
	}
	if (view->kept && !view->session && !view->text_only)
		fprintf(f, " Files that the program writes to /output come back: images are shown, "
			   "others are listed.");
}

static const char *sandbox_help(enum tool_id id, const struct tool_view *view)
{
	if (tool_runs(id) && view->by_id)
		return "The id of a kept sandbox, as write_file returned it. Without it the run "
		       "gets a new sandbox.";
	if (tool_runs(id) && view->session)
		return "The id of a kept sandbox. Default: this session's.";
	if (tool_runs(id))
		return "The id of a kept sandbox, or \"session\" for the one that write_file uses. "
		       "Without it the run gets a new one.";
	if (view->by_id && (id == TOOL_WRITE_FILE || id == TOOL_INSTALL_PACKAGES))
		return "The id of a kept sandbox. Without it a new one is made, and its id "
		       "returned.";
	return view->by_id ? "The id of a kept sandbox."
			   : "The id of a kept sandbox. Default: this session's.";
}

static void tell_install(FILE *f, const struct tool_view *view)
{
	const char *use = view->by_id     ? "pass the id of the sandbox, which is returned,"
			  : view->session ? NULL
					  : "pass \"session\"";

	if (use)
		fprintf(f,
			" A run in another sandbox does not have them: %s as \"sandbox\" to "
			"run_python, run_node or run_shell to use them.",
			use);
	else
		fputs(" The next run_python, run_node and run_shell can use them.", f);
	fprintf(f, " At most %g seconds.", view->timeout_s);
}

char *tool_description(enum tool_id id, const struct tool_view *view)
{
	char *text = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);

	if (!f)
		return NULL;
	fputs(tools[id].help, f);
	if (tool_runs(id))
		tell_run(f, view);
	if (id == TOOL_INSTALL_PACKAGES)
		tell_install(f, view);
	if (id == TOOL_WRITE_FILE && view->by_id)
		fputs(" Returns the sandbox's id, for the argument \"sandbox\" of other tools.", f);
	else if (id == TOOL_WRITE_FILE)
		fputs(" The sandbox is made at the first use and ends with this session.", f);
	if (fclose(f) == 0)
		return text;
	free(text);
	return NULL;
}

static json_t *property(enum tool_id id, int i, const struct tool_view *view)
{
	const char *help = 1u << i == ARG_SANDBOX ? sandbox_help(id, view) : rows[i].help;
	json_t *p = json_pack("{ssss}", "type", kind_names[rows[i].kind], "description", help);

	if (1u << i == ARG_ENCODING)
		json_object_set_new(p, "enum", json_pack("[ss]", "utf-8", "base64"));
	if (1u << i == ARG_MANAGER)
		json_object_set_new(p, "enum", json_pack("[ss]", "pip", "npm"));
	if (rows[i].kind == KIND_LIST)
		json_object_update_new(p, json_pack("{s{ss} si si}", "items", "type", "string",
						    "minItems", 1, "maxItems", PACKAGES_MAX));
	if (1u << i == ARG_TIMEOUT)
		json_object_set_new(p, "maximum", json_real(view->timeout_s));
	if (rows[i].kind == KIND_INTEGER)
		json_object_set_new(p, "minimum", json_integer(0));
	return p;
}

json_t *tool_input_schema(enum tool_id id, const struct tool_view *view)
{
	json_t *properties = json_object(), *required = json_array();

	for (int i = 0; i < ARG_COUNT; i++) {
		if (!has_argument(id, 1u << i, view))
			continue;
		json_object_set_new(properties, rows[i].name, property(id, i, view));
		if (is_required(id, 1u << i, view))
			json_array_append_new(required, json_string(rows[i].name));
	}
	return json_pack("{ss so so sb}", "type", "object", "properties", properties, "required",
			 required, "additionalProperties", false);
}

/* {"type": …} of some properties that are always there; what a value may be besides is in the words. */
static json_t *object_schema(const char *const (*fields)[2], size_t count)
{
	json_t *properties = json_object(), *required = json_array();

	for (size_t i = 0; i < count; i++) {
		const char *type = fields[i][1];
		json_t *value = *type == '?' ? json_pack("{s[ss]}", "type", type + 1, "null")
					     : json_pack("{ss}", "type", type);

		json_object_set_new(properties, fields[i][0], value);
		json_array_append_new(required, json_string(fields[i][0]));
	}
	return json_pack("{ss so so}", "type", "object", "properties", properties, "required",
			 required);
}

json_t *tool_output_schema(enum tool_id id)
{
	static const char *const run[][2] = {{"ok", "boolean"},         {"reason", "string"},
					     {"error_code", "?string"}, {"message", "string"},
					     {"exit_code", "?integer"}, {"signal", "?integer"},
					     {"stdout", "string"},      {"stderr", "string"},
					     {"encoding", "string"},    {"artifacts", "array"}};
	static const char *const written[][2] = {
		{"sandbox", "string"}, {"path", "string"}, {"bytes", "integer"}};
	static const char *const read[][2] = {{"sandbox", "string"}, {"path", "string"},
					      {"size", "integer"},   {"bytes", "integer"},
					      {"offset", "integer"}, {"truncated", "boolean"}};
	static const char *const listed[][2] = {{"sandbox", "string"},
						{"path", "string"},
						{"entries", "array"},
						{"truncated", "boolean"}};
	static const char *const sandboxes[][2] = {{"sandboxes", "array"}};
	static const char *const gone[][2] = {{"ended", "array"}};

	switch (id) {
	case TOOL_WRITE_FILE:
		return object_schema(written, ARRAY_SIZE(written));
	case TOOL_READ_FILE:
		return object_schema(read, ARRAY_SIZE(read));
	case TOOL_LIST_FILES:
		return object_schema(listed, ARRAY_SIZE(listed));
	case TOOL_LIST_SANDBOXES:
		return object_schema(sandboxes, ARRAY_SIZE(sandboxes));
	case TOOL_RESET:
		return object_schema(gone, ARRAY_SIZE(gone));
	default:
		return object_schema(run, ARRAY_SIZE(run));
	}
}

json_t *tool_annotations(enum tool_id id, const struct tool_view *view)
{
	const struct tool *t = &tools[id];

	return json_pack("{ss sb sb sb sb}", "title", t->title, "readOnlyHint", t->read_only,
			 "destructiveHint", t->destructive, "idempotentHint", t->idempotent,
			 "openWorldHint", t->needs_network || (tool_runs(id) && view->open_world));
}

json_t *tool_mcp(enum tool_id id, const struct tool_view *view, unsigned features)
{
	_cleanup_free_ char *help = tool_description(id, view);
	json_t *t = json_pack("{ss ss so}", "name", view->rename ? view->rename : tools[id].name,
			      "description", help ? help : "", "inputSchema",
			      tool_input_schema(id, view));

	if (features & TOOL_ANNOTATIONS)
		json_object_set_new(t, "annotations", tool_annotations(id, view));
	if (features & TOOL_OUTPUT_SCHEMA) {
		json_object_set_new(t, "title", json_string(tools[id].title));
		json_object_set_new(t, "outputSchema", tool_output_schema(id));
	}
	return t;
}

/* ---- the providers' formats ---- */

static json_t *described(enum tool_id id, const struct tool_view *view, const char *schema_key,
			 json_t *schema)
{
	_cleanup_free_ char *help = tool_description(id, view);

	return json_pack("{ss ss so}", "name", view->rename ? view->rename : tools[id].name,
			 "description", help ? help : "", schema_key, schema);
}

static json_t *list_openai(const enum tool_id *ids, size_t count, const struct tool_view *view)
{
	json_t *list = json_array();

	for (size_t i = 0; i < count; i++)
		json_array_append_new(list, json_pack("{ss so}", "type", "function", "function",
						      described(ids[i], view, "parameters",
								tool_input_schema(ids[i], view))));
	return list;
}

/* The Responses API has the same without the wrapping. */
static json_t *list_responses(const enum tool_id *ids, size_t count, const struct tool_view *view)
{
	json_t *list = json_array();

	for (size_t i = 0; i < count; i++) {
		json_t *t = described(ids[i], view, "parameters", tool_input_schema(ids[i], view));

		json_object_set_new(t, "type", json_string("function"));
		json_object_set_new(t, "strict", json_false());
		json_array_append_new(list, t);
	}
	return list;
}

static json_t *list_anthropic(const enum tool_id *ids, size_t count, const struct tool_view *view)
{
	json_t *list = json_array();

	for (size_t i = 0; i < count; i++)
		json_array_append_new(list, described(ids[i], view, "input_schema",
						      tool_input_schema(ids[i], view)));
	return list;
}

/* A subset of OpenAPI's schema: types are the names of an enum, and unknown keys are refused. */
static void to_gemini(json_t *schema)
{
	const char *type = json_string_value(json_object_get(schema, "type")), *key;
	char upper[16] = "";
	json_t *v;

	for (size_t i = 0; type && type[i] && i < sizeof upper - 1; i++)
		upper[i] = (char)(type[i] >= 'a' && type[i] <= 'z' ? type[i] - 32 : type[i]);
	if (type)
		json_object_set_new(schema, "type", json_string(upper));
	json_object_del(schema, "additionalProperties");
	json_object_foreach(json_object_get(schema, "properties"), key, v)
		to_gemini(v);
	if (json_object_get(schema, "items"))
		to_gemini(json_object_get(schema, "items"));
}

static json_t *list_gemini(const enum tool_id *ids, size_t count, const struct tool_view *view)
{
	json_t *list = json_array();

	for (size_t i = 0; i < count; i++) {
		json_t *schema = tool_input_schema(ids[i], view);

		to_gemini(schema);
		json_array_append_new(list, described(ids[i], view, "parameters", schema));
	}
	return json_pack("[{so}]", "functionDeclarations", list);
}

static json_t *list_mcp(const enum tool_id *ids, size_t count, const struct tool_view *view)
{
	json_t *list = json_array();

	for (size_t i = 0; i < count; i++)
		json_array_append_new(list, tool_mcp(ids[i], view,
						     TOOL_ANNOTATIONS | TOOL_OUTPUT_SCHEMA));
	return json_pack("{so}", "tools", list);
}

const struct tool_format tool_formats[] = {
	{"openai", list_openai},
	{"openai-responses", list_responses},
	{"anthropic", list_anthropic},
	{"gemini", list_gemini},
	{"mcp", list_mcp},
};
const size_t tool_format_count = ARRAY_SIZE(tool_formats);
