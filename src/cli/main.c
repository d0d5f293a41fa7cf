/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/policy.h"

/* Which rows of the sandbox's option table the service takes where. */
static const char *const create_rows[] = {"image",       "runtime",  "profile",    "memory",
					  "memory-swap", "cpus",     NETWORK_ROWS, "user",
					  "env",         "env-file", "workdir",    "tmpfs",
					  "volume",      "hostname", "pids-limit", NULL};
static const char *const exec_rows[] = {"env",     "env-file",   "workdir",
					"timeout", "max-output", NULL};

/* What describes the sandboxes of an agent; files go through its tools. */
static const char *const agent_rows[] = {"image",        "runtime",     "profile",
					 "memory",       "memory-swap", "cpus",
					 NETWORK_ROWS,   "user",        "env",
					 "env-file",     "workdir",     "tmpfs",
					 "volume",       "venv",        "hostname",
					 "pids-limit",   "timeout",     "cpu-time",
					 "idle-timeout", "max-output",  "on-output-limit",
					 "best-effort",  NULL};

#define CODE       "[OPTION...] [-c CODE | FILE | -] [ARG...]"
#define EVERYWHERE .operands_before = OPERANDS_ANYWHERE

/* clang-format off */
static const char map_help[] =
	"With --map each line of FILE is a run: a string, which is the code (of run: a command for sh -c), or\n"
	"an object with \"code\" (of run: \"command\") that may have \"args\", \"stdin\" and \"tag\". Without stdin the code\n"
	"goes in as with -, with it as with -c. Options hold for every run. A line {\"index\",\"tag\",\"result\"} comes for\n"
	"each, in the order of FILE; one that is no run has \"error\" in the place of \"result\". Exit status: 0 all\n"
	"results are ok, 1 some are not, 125 some lines have none, 130 interrupted. The first Ctrl-C lets what\n"
	"runs come to its end, the second ends it; --resume goes on with what has no line in --results.\n";

const struct verb verbs[] = {
	{"run", "[OPTION...] [--] COMMAND [ARG...]", "run a command in a new sandbox", verb_run,
	 language_options + 1, sandbox_options_all, .more = map_help},
	{"python", CODE, "run Python code in a new sandbox", verb_language,
	 language_options, sandbox_options_all, .more = map_help},
	{"bash", CODE, "run a bash script in a new sandbox", verb_language,
	 language_options, sandbox_options_all, .more = map_help},
	{"node", CODE, "run JavaScript in a new sandbox", verb_language,
	 language_options, sandbox_options_all, .more = map_help},
	{"create", "[OPTION...]", "make a sandbox that is kept, and print its id", verb_create,
	 create_options, create_rows, EVERYWHERE},
	{"ls", "[--all] [--state STATE] [--label K=V]... [--json]", "list sandboxes", verb_ls,
	 ls_options, EVERYWHERE},
	{"exec", "SANDBOX [OPTION...] [--] COMMAND [ARG...]", "run a command in a kept sandbox", verb_exec,
	 exec_options, exec_rows, .operands_before = 1,
	 .more = "With --language: cloche exec SANDBOX --language python [-c CODE | FILE | -] [ARG...]\n"
		 "Without -i the command has no stdin. With -t what it writes reaches your terminal as it is.\n"},
	{"ps", "SANDBOX [--started] [--json]", "list the processes in a sandbox", verb_ps,
	 ps_options, EVERYWHERE},
	{"logs", "SANDBOX [PROCESS] | PROCESS [-f]", "print what background processes wrote", verb_logs,
	 logs_options, EVERYWHERE},
	{"cp", "SANDBOX:PATH DST | SRC SANDBOX:PATH", "copy files and folders out of or into a sandbox", verb_cp,
	 cp_options, EVERYWHERE,
	 .more = "\"-\" is stdin or stdout: a file's bytes, or a folder as a tar. A relative PATH lies below\n"
		 "/workspace; SRC/. is what is in the folder, without the folder. A local name with a colon\n"
		 "is written ./NAME. Exit status 1: copied, but something was left out.\n"},
	{"network", "show SANDBOX | set SANDBOX --network MODE [--allow RULE]... [--deny RULE]...",
	 "see what a sandbox may connect to, or change it while it runs", verb_network, network_options, network_rows,
	 EVERYWHERE, .words = "show set",
	 .more = "set replaces all rules. A sandbox that was made without a network cannot get one.\n"},
	{"ports", "SANDBOX [--share PORT [--expires TIME] | --unshare PORT] [--json]",
	 "list what listens in a sandbox, or share a port", verb_ports, ports_options, EVERYWHERE},
	{"port-forward", "SANDBOX [LOCAL:]PORT...", "reach ports in a sandbox on 127.0.0.1, while it runs",
	 verb_port_forward, port_forward_options, EVERYWHERE,
	 .more = "Ctrl-C ends it and every connection. LOCAL 0 takes a port that is free; which one is printed.\n"},
	{"kill", "SANDBOX...", "end sandboxes", verb_kill, json_options, EVERYWHERE},
	{"pause", "SANDBOX...", "freeze sandboxes; their memory stays", verb_pause, json_options, EVERYWHERE},
	{"resume", "SANDBOX...", "let paused sandboxes go on", verb_resume, json_options, EVERYWHERE},
	{"renew", "SANDBOX... [--timeout LIFE] [--idle-timeout TIME]", "let sandboxes live longer, from now on",
	 verb_renew, renew_options, EVERYWHERE},
	{"events", "[-f] [--since SEQ] [--sandbox SANDBOX] [--json]", "print what happened to sandboxes", verb_events,
	 events_options, EVERYWHERE},
	{"audit", "[verify] [--after SEQ] [--limit N] [--json]", "print who did what, or check the chain of records",
	 verb_audit, audit_options, EVERYWHERE, .words = "verify"},
	{"top", "[--once] [--json]", "watch what sandboxes use", verb_top, top_options, EVERYWHERE},
	{"key", "create NAME [--quota K=V]... | ls | revoke ID", "make, list and revoke API keys", verb_key,
	 key_options, EVERYWHERE, .words = "create ls revoke"},
	{"mcp", "[OPTION...]", "be an MCP server on stdin and stdout, for an agent", verb_mcp,
	 mcp_options, agent_rows, EVERYWHERE,
	 .more = "claude mcp add cloche -- cloche mcp; other clients: docs/agents.md. The options are for every\n"
		 "sandbox it makes; --timeout (30s, if nothing else is said) is also the most that a model may ask for.\n"},
	{"tools", "[TOOL...] | call TOOL [ARGUMENTS | -]", "print the tools for a model's API, or answer one call", verb_tools,
	 tools_options, agent_rows, EVERYWHERE, .words = "call run_python run_node run_shell",
	 .more = "call: ARGUMENTS is the JSON that the model sent, without it stdin; what is printed goes back to\n"
		 "the model, whatever happened. With --name the name stands for run_python.\n"},
	{"ask", "[OPTION...] QUESTION | -", "ask a model that runs its code in sandboxes", verb_ask,
	 ask_options, agent_rows, EVERYWHERE,
	 .more = "The answer is on standard output, all else on standard error. Keys are ANTHROPIC_API_KEY, OPENAI_API_KEY,\n"
		 "GEMINI_API_KEY or GOOGLE_API_KEY, in the environment or in .env; they never reach a sandbox. Exit status: 0 there\n"
		 "is an answer, 125 there is none (MODEL_COMPLETION_FAILED in --json), 130 interrupted. docs/ask.md has more.\n"},
	{"image", "pull IMAGE... | import FILE|FOLDER|- [NAME[:TAG]] | ls | inspect IMAGE... | rm IMAGE... | prune",
	 "pull, import, list and remove images", verb_image,
	 image_options, EVERYWHERE, .words = "pull import ls inspect rm prune",
	 .more = "FILE is what `docker save` writes, an OCI layout as a tar, or a root file system as a tar, compressed or not;\n"
		 "FOLDER an OCI layout or a root file system. rm removes a name, and the image with its last name. prune removes\n"
		 "images without a name. What a sandbox runs stays.\n"},
	{"serve", "[OPTION...]", "be the service, in the foreground", verb_serve, serve_options},
	{"doctor", "[--json]", "say what this machine can enforce, and how to get the rest",
	 verb_doctor, json_options, EVERYWHERE},
	{"policy", "explain [OPTION...] [METHOD] URL|HOST[:PORT]...", "say which rule of a network policy decides, and why",
	 verb_policy, policy_options, network_rows, EVERYWHERE, .words = "explain",
	 .more = "cloche policy explain --network allow --preset pypi https://pypi.org/simple/ POST https://pypi.org/\n"
		 "Nothing is resolved, and nothing connected to. It knows this machine's files; a service has its own.\n"
		 "Exit status: 0 all are allowed, 1 some are denied.\n"},
	{"config", "show [--json]", "print every setting and where its value comes from",
	 verb_config, json_options, EVERYWHERE, .words = "show"},
	{"help", "[VERB]", "explain cloche or one verb", verb_help},
	{"version", "", "print the version", verb_version},
	{"reference", "man|bash", "print the manual page or the completion, from the tables",
	 verb_reference},
};
/* clang-format on */
const size_t verb_count = ARRAY_SIZE(verbs);

/* A program may be started with 0, 1 or 2 closed; what it opens next must not land there. */
static void fill_standard_descriptors(void)
{
	for (int fd = 0; fd <= 2; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd)
			return;
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "help";
	struct err e = {0};

	if (getauxval(AT_SECURE)) {
		err_set(&e, 0, "must not be installed set-user-id or with capabilities");
		return fail(EXIT_CLOCHE, &e);
	}
	fill_standard_descriptors();
	signal(SIGPIPE, SIG_IGN);
	signal(SIGCHLD, SIG_DFL); /* our own children are waited for */
	scope_find_runtime_dir();
	if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
		name = "help";
	if (strcmp(name, "--version") == 0)
		name = "version";
	for (size_t i = 0; i < verb_count; i++)
		if (strcmp(verbs[i].name, name) == 0)
			return verbs[i].run(&verbs[i], argc - 1, argv + 1);
	err_set(&e, 0, "no such verb: %.60s (try `cloche help`)", name);
	return fail(EXIT_USAGE, &e);
}
