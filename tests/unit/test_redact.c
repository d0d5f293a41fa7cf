/* SPDX-License-Identifier: Apache-2.0 */
/* Secrets taken out of bytes: in every spelling, at every cut, and nothing else. */
#include "unit.h"

#include <ctype.h>
#include <openssl/evp.h>

#include "egress/credential.h"

static const char token[] = "ghp_S3CR3T/+0 x\"%41\\y~";
static const char password[] = "open sesame";

static struct egress_settings settings;

static void add(const char *header, const char *value)
{
	struct credential *c = &settings.credentials[settings.credential_count++];

	*c = (struct credential){.port = 443};
	snprintf(c->header, sizeof c->header, "%s", header);
	c->value = (char *)value;
	c->size = strlen(value);
}

static struct redactor *make(void)
{
	struct redactor *r = redactor_new(&settings);

	assert_non_null(r);
	return r;
}

static int setup(void **state)
{
	static char basic[128], bearer[64];
	char plain[64];

	(void)state;
	settings = (struct egress_settings){0};
	snprintf(bearer, sizeof bearer, "Bearer %s", token);
	snprintf(plain, sizeof plain, "alice:%s", password);
	snprintf(basic, sizeof basic, "Basic ");
	EVP_EncodeBlock((unsigned char *)basic + 6, (unsigned char *)plain, (int)strlen(plain));
	add("Authorization", bearer);
	add("authorization", basic);
	add("Cookie", "session=c00k1e-of-mine; lang=en; theme=purple-haze");
	add("X-Api-Key", "k");
	settings.credential_count--; /* test_short has it */
	return 0;
}

/* ---- spellings ---- */

static void percent(char *to, const char *from, const char *digits, bool all)
{
	for (; *from; from++) {
		unsigned char c = (unsigned char)*from;

		if (!all && isalnum(c)) {
			*to++ = (char)c;
			continue;
		}
		*to++ = '%';
		*to++ = digits[c >> 4];
		*to++ = digits[c & 15];
	}
	*to = '\0';
}

static void form(char *to, const char *from)
{
	percent(to, from, "0123456789ABCDEF", false);
	for (char *p; (p = strstr(to, "%20"));) {
		*p = '+';
		memmove(p + 1, p + 3, strlen(p + 3) + 1);
	}
}

static void json(char *to, const char *from)
{
	for (; *from; from++) {
		if (strchr("\"\\/", *from))
			*to++ = '\\';
		*to++ = *from;
	}
	*to = '\0';
}

static void json_all(char *to, const char *from)
{
	for (; *from; from++, to += 6)
		snprintf(to, 7, "\\u%04x", (unsigned char)*from);
}

static void mixed(char *to, const char *from)
{
	for (int i = 0; *from; from++, i++, to += strlen(to))
		snprintf(to, 7,
			 i % 3 == 0   ? "%%%02x"
			 : i % 3 == 1 ? "\\u%04X"
				      : "%c",
			 (unsigned char)*from);
}

static void spell(int how, char *to, const char *from)
{
	switch (how) {
	case 0:
		snprintf(to, 512, "%s", from);
		break;
	case 1:
		percent(to, from, "0123456789ABCDEF", false);
		break;
	case 2:
		percent(to, from, "0123456789abcdef", false);
		break;
	case 3:
		percent(to, from, "0123456789ABCDEF", true);
		break;
	case 4:
		percent(to, from, "0123456789aBcDeF", true);
		break;
	case 5:
		form(to, from);
		break;
	case 6:
		json(to, from);
		break;
	case 7:
		json_all(to, from);
		break;
	default:
		mixed(to, from);
		break;
	}
}
enum { SPELLINGS = 9 };

/* Text in pieces of so many bytes (0: one piece), into to. */
static size_t feed(const char *text, size_t size, size_t piece, char *to)
{
	struct redactor *r = make();
	size_t used = 0, n;
	const char *out;

	for (size_t at = 0;; at += n) {
		size_t got;
		bool last;

		n = piece && piece < size - at ? piece : size - at;
		last = at + n == size;
		assert_int_equal(redactor_feed(r, text + at, n, last, &out, &got), 0);
		if (got)
			memcpy(to + used, out, got);
		used += got;
		if (last)
			break;
	}
	redactor_free(r);
	return used;
}

static const char before[] = "{\"headers\": {\"authorization\": \"",
		  after[] = "\", \"accept\": \"*/*\"}}";

/* What stands in the middle is covered, all of it, and nothing beside it. */
static void check_covered(const char *middle)
{
	char text[1024], out[1024];
	size_t n = strlen(middle), size;
	struct redactor *r = make();

	size = (size_t)snprintf(text, sizeof text, "%s%s%s", before, middle, after);
	for (size_t piece = 0; piece < 9; piece++) {
		assert_int_equal(feed(text, size, piece, out), size);
		assert_memory_equal(out, before, sizeof before - 1);
		assert_memory_equal(out + size - (sizeof after - 1), after, sizeof after - 1);
		for (size_t i = 0; i < n; i++)
			if (out[sizeof before - 1 + i] != '*')
				fail_msg("%s: byte %zu stands: %.*s", middle, i, (int)size, out);
	}
	assert_true(redact(r, text, size));
	assert_memory_equal(text, out, size);
	assert_false(redact(r, text, size));
	redactor_free(r);
}

static void test_spellings(void **state)
{
	static const char *const secrets[] = {token, password, "c00k1e-of-mine", "purple-haze",
					      "alice:open sesame"};
	char text[512];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(secrets); i++)
		for (int how = 0; how < SPELLINGS; how++) {
			spell(how, text, secrets[i]);
			check_covered(text);
		}
	check_covered(settings.credentials[0].value);
	check_covered(settings.credentials[1].value);
	check_covered(settings.credentials[2].value);
}

/* In base64 with 0 to 8 bytes in front and behind: at most the two characters at each edge that hold bits of both stand. */
static void test_base64(void **state)
{
	char plain[256], text[512], out[1024];

	(void)state;
	for (size_t before_size = 0; before_size < 9; before_size++)
		for (int url = 0; url < 2; url++)
			for (int how = 0; how < 4; how += 3) {
				size_t n, i, first = (8 * before_size + 5) / 6,
					     end = 8 * (before_size + strlen(token)) / 6;
				char spelt[1024];

				snprintf(plain, sizeof plain, "%.*s%s:behind", (int)before_size,
					 "????????", token);
				n = (size_t)EVP_EncodeBlock((unsigned char *)text,
							    (unsigned char *)plain,
							    (int)strlen(plain));
				for (i = 0; url && i < n; i++)
					text[i] = text[i] == '+'   ? '-'
						  : text[i] == '/' ? '_'
								   : text[i];
				spell(how, spelt, text);
				assert_int_equal(feed(spelt, strlen(spelt), 7, out), strlen(spelt));
				for (i = 0; i < strlen(spelt); i++) {
					size_t at = i / (strlen(spelt) / n);

					assert_int_equal(out[i] == '*', at >= first && at < end);
				}
			}
}

static void test_nothing_else(void **state)
{
	static const char *const texts[] = {
		"",
		"Bearer ",
		"ghp_S3CR3T",
		"ghp_S3CR3T/+0 x\"%41\\y",
		"open sesam",
		"%6f%70%65%6e%20%73",
		"\\u0067hp_",
		"en",
		"alice",
		"lang=en",
		"Basic",
		"%",
		"%%%%%%",
		"\\",
		"\\u",
		"\\u00",
		"+",
		"100 % sure\\n",
		"ghp_S3CR3T/+0 x\"A\\y~", /* that one's %41 stands for itself */
	};
	char out[256];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		for (size_t piece = 0; piece < 4; piece++) {
			assert_int_equal(feed(texts[i], strlen(texts[i]), piece, out),
					 strlen(texts[i]));
			assert_memory_equal(out, texts[i], strlen(texts[i]));
		}
}

/* What cannot become a secret goes out at once: events of a stream are not held up. */
static void test_at_once(void **state)
{
	static const struct {
		const char *text;
		size_t out;
	} cases[] = {
		{"data: {\"a\": 1}\n\n", 16}, {"data: ghp_", 6},  {"data: ghp_S3CR3T/+0 x", 6},
		{"data: ghp_S3CR4", 15},      {"data: \\u00", 6}, {"data: ghp%5", 6},
		{"data: ghp%5b.", 13},        {"data: o%7", 6},   {"open sesame.", 12},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct redactor *r = make();
		const char *out;
		size_t size;

		assert_int_equal(redactor_feed(r, cases[i].text, strlen(cases[i].text), false, &out,
					       &size),
				 0);
		assert_int_equal(size, cases[i].out);
		assert_int_equal(redactor_feed(r, "", 0, true, &out, &size), 0);
		assert_int_equal(size, strlen(cases[i].text) - cases[i].out);
		redactor_free(r);
	}
}

/* One within the other, one over the other's end. */
static void test_overlaps(void **state)
{
	struct egress_settings kept = settings;
	char out[64];

	(void)state;
	settings = (struct egress_settings){0};
	add("x", "abcdef");
	add("x", "cdefghij");
	add("x", "efg");
	for (size_t piece = 0; piece < 6; piece++) {
		assert_int_equal(feed("-abcdefghijk-", 13, piece, out), 13);
		assert_memory_equal(out, "-**********k-", 13);
		assert_int_equal(feed("-abcdefghi-efg", 14, piece, out), 14);
		assert_memory_equal(out, "-*******hi-***", 14);
		assert_int_equal(feed("ababcdefabcde", 13, piece, out), 13);
		assert_memory_equal(out, "ab******abcde", 13);
	}
	settings = kept;
}

static void test_short(void **state)
{
	struct egress_settings kept = settings;
	char out[64];

	(void)state;
	settings = (struct egress_settings){0};
	add("x", "k");
	assert_int_equal(feed("ok %6b %6B \\u006b %6", 20, 1, out), 20);
	assert_memory_equal(out, "o* *** *** ****** %6", 20);
	settings = kept;
}

static void test_percent_twice(void **state)
{
	struct egress_settings kept = settings;
	char out[64];

	(void)state;
	settings = (struct egress_settings){0};
	add("x", "%25%");
	for (size_t piece = 0; piece < 5; piece++) {
		assert_int_equal(feed("a%25%b %2525%25c %25%", 21, piece, out), 21);
		assert_memory_equal(out, "a****b ********c ****", 21);
	}
	settings = kept;
}

static void test_no_secret(void **state)
{
	struct egress_settings kept = settings;
	char out[64];

	(void)state;
	settings = (struct egress_settings){0};
	assert_int_equal(feed("%41 \\u0041", 10, 3, out), 10);
	assert_memory_equal(out, "%41 \\u0041", 10);
	settings = kept;
}

static void test_shared(void **state)
{
	struct redactor *a = make(), *b = redactor_dup(a);
	const char *out;
	size_t size;

	(void)state;
	assert_int_equal(redactor_feed(a, "open ", 5, false, &out, &size), 0);
	assert_int_equal(size, 0);
	assert_int_equal(redactor_feed(b, "sesame", 6, false, &out, &size), 0);
	assert_int_equal(size, 6);
	redactor_free(a);
	assert_int_equal(redactor_feed(b, "open sesame", 11, true, &out, &size), 0);
	assert_int_equal(size, 11);
	assert_memory_equal(out, "***********", 11);
	redactor_free(b);
	redactor_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_spellings),     cmocka_unit_test(test_base64),
		cmocka_unit_test(test_nothing_else),  cmocka_unit_test(test_at_once),
		cmocka_unit_test(test_overlaps),      cmocka_unit_test(test_short),
		cmocka_unit_test(test_percent_twice), cmocka_unit_test(test_no_secret),
		cmocka_unit_test(test_shared),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
