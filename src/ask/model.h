/* SPDX-License-Identifier: Apache-2.0 */
/* model.h - from the one setting MODEL to a provider and its name for the model. */
#ifndef ASK_MODEL_H
#define ASK_MODEL_H

#include "ask/provider.h"

/* "anthropic/NAME" or "google_genai:NAME" say whose it is, and so does a name that is known ("claude-..."); with a
 * BASE_URL any other is OpenAI's. *ret_name is part of model. */
int model_choose(const char *model, bool has_url, const struct provider **ret_provider,
		 const char **ret_name, struct err *e) must_check;

#endif
