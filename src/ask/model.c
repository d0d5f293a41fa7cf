/* SPDX-License-Identifier: Apache-2.0 */
#include "ask/model.h"

#include <fnmatch.h>
#include <string.h>

static const struct provider *const providers[] = {&provider_anthropic, &provider_openai,
						   &provider_gemini};

/* With a slash or, as LangChain has it, a colon behind. */
static const struct {
	const char *word;
	const struct provider *provider;
} prefixes[] = {
	{"anthropic", &provider_anthropic}, {"openai", &provider_openai},
	{"gemini", &provider_gemini},       {"google_genai", &provider_gemini},
	{"google", &provider_gemini},
};

static bool is_bare(const struct provider *p, const char *model)
{
	for (const char *const *name = p->bare_names; *name; name++)
		if (fnmatch(*name, model, 0) == 0)
			return true;
	return false;
}

int model_choose(const char *model, bool has_url, const struct provider **ret_provider,
		 const char **ret_name, struct err *e)
{
	size_t n = strcspn(model, "/:");

	*ret_name = model;
	if (!*model || strlen(model) > 256 || strpbrk(model, "\r\n\t"))
		return err_set(e, 0, "MODEL: give the name of a model");
	for (size_t i = 0; model[n] && model[n + 1] && i < ARRAY_SIZE(prefixes); i++)
		if (strlen(prefixes[i].word) == n && strncmp(prefixes[i].word, model, n) == 0) {
			*ret_provider = prefixes[i].provider;
			*ret_name = model + n + 1;
			return 0;
		}
	for (size_t i = 0; i < ARRAY_SIZE(providers); i++)
		if (is_bare(providers[i], model)) {
			*ret_provider = providers[i];
			return 0;
		}
	if (!has_url)
		return err_set(e, 0,
			       "MODEL %.100s: whose it is cannot be told: write anthropic/NAME, "
			       "openai/NAME or gemini/NAME, or give --base-url of a server that "
			       "speaks as OpenAI does",
			       model);
	*ret_provider = &provider_openai;
	return 0;
}
