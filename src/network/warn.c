/* SPDX-License-Identifier: Apache-2.0 */
/*
 * warn.c - rules that allow more than they seem to: names below which anybody can have a place of his own, and so
 * a way to take data out.
 */
#include <stdio.h>
#include <string.h>

#include "network/rule.h"

/* Domains whose children belong to many. "*" fits any bytes. From each provider's documentation of its endpoints. */
static const char *const shared[] = {
	"amazonaws.com",
	"s3.amazonaws.com",
	"s3.*.amazonaws.com",
	"s3.dualstack.*.amazonaws.com",
	"s3-website*.amazonaws.com",
	"s3-accelerate.amazonaws.com",
	"execute-api.*.amazonaws.com",
	"lambda-url.*.on.aws",
	"elb.amazonaws.com",
	"elasticbeanstalk.com",
	"cloudfront.net",
	"amplifyapp.com",
	"awsapprunner.com",
	"blob.core.windows.net",
	"web.core.windows.net",
	"file.core.windows.net",
	"dfs.core.windows.net",
	"core.windows.net",
	"azurewebsites.net",
	"azureedge.net",
	"azurefd.net",
	"azurestaticapps.net",
	"cloudapp.azure.com",
	"azurecontainerapps.io",
	"storage.googleapis.com",
	"googleapis.com",
	"appspot.com",
	"run.app",
	"web.app",
	"firebaseapp.com",
	"firebaseio.com",
	"cloudfunctions.net",
	"googleusercontent.com",
	"github.io",
	"githubusercontent.com",
	"gitlab.io",
	"bitbucket.io",
	"pages.dev",
	"workers.dev",
	"r2.dev",
	"r2.cloudflarestorage.com",
	"trycloudflare.com",
	"vercel.app",
	"now.sh",
	"netlify.app",
	"herokuapp.com",
	"onrender.com",
	"fly.dev",
	"railway.app",
	"up.railway.app",
	"digitaloceanspaces.com",
	"ondigitalocean.app",
	"linodeobjects.com",
	"backblazeb2.com",
	"wasabisys.com",
	"supabase.co",
	"ngrok.io",
	"ngrok.app",
	"ngrok-free.app",
	"loca.lt",
	"surge.sh",
	"glitch.me",
	"repl.co",
	"replit.app",
	"replit.dev",
	"deno.dev",
	"hf.space",
	"readthedocs.io",
	"blogspot.com",
	"wordpress.com",
	"webhook.site",
	"pipedream.net",
	"oastify.com",
	"myshopify.com",
	"fastly.net",
	"edgekey.net",
	"akamaized.net",
	"b-cdn.net",
	"translate.goog",
	"duckdns.org",
	"nip.io",
	"sslip.io",
};

/* The rule stands at a shared domain, below it where others are still one level down, or above it. */
static const char *shared_by(const struct network_rule *r)
{
	size_t n = strlen(r->host);

	for (size_t i = 0; i < ARRAY_SIZE(shared); i++) {
		size_t m = strlen(shared[i]);

		if (network_glob(shared[i], r->host))
			return r->host;
		if (r->form == HOST_ANY_LABELS && m > n && shared[i][m - n - 1] == '.' &&
		    strcmp(shared[i] + m - n, r->host) == 0)
			return shared[i];
	}
	return NULL;
}

static bool warn(const struct network_rule *r, char *text, size_t size)
{
	const char *domain;

	if (r->deny || (r->form != HOST_ONE_LABEL && r->form != HOST_ANY_LABELS))
		return false;
	domain = shared_by(r);
	if (!domain && strchr(r->host, '.'))
		return false;
	if (domain)
		snprintf(
			text, size,
			"%s: anybody can have a name below %s, so data can leave by it; name the hosts that are meant",
			r->text, domain);
	else
		snprintf(text, size,
			 "%s: is a whole top-level domain; name the hosts that are meant", r->text);
	return true;
}

bool network_warning(const struct network_policy *p, size_t i, char *text, size_t size)
{
	for (size_t k = 0; k < p->rule_count; k++)
		if (warn(&p->rules[k], text, size) && i-- == 0)
			return true;
	return false;
}
