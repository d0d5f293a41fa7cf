/* SPDX-License-Identifier: Apache-2.0 */
/*
 * registry.h - images from registries (OCI distribution and Docker's v2 API), by libcurl.
 *
 *	struct registry *r = registry_open(&config, &reference, &options, e);
 *	registry_resolve(r, &platform, &image, e);      // tag to manifest, verified
 *	registry_fetch(r, blobs, count, e);             // config and layers into sinks, several at a time
 *	registry_close(r);
 *
 * Who is trusted: nobody. A registry, its token server and whatever it redirects to may send anything; all of
 * it is bounded and strictly read, and what was asked for by digest is checked against it (manifests here,
 * blobs by their sinks). What holds whatever they send:
 *
 *  - Only http and https, at most 5 redirects, never from https to http.
 *  - Nobody sends us further inside than where they are: a registry with a public address cannot lead to a
 *    private one or to this machine, one in a private network not to this machine; nobody leads to link-local
 *    addresses (169.254.169.254). Judged by the address that is connected to, every time. Behind a proxy only
 *    the proxy knows the address; there names and literal addresses are judged.
 *  - Passwords go to the registry they are for (Basic) or to the token server it names, which must be https,
 *    or the registry's own host if that is spoken to in plain HTTP. Tokens go to the host that asked for them and
 *    nowhere else, redirects least of all.
 *  - What is sent compressed beyond what the media type says is refused: no hidden bombs.
 *
 * Blocking, one thread; one loop drives all transfers. libcurl resolves names in threads of its own, so a
 * program that forks without exec does it before registry_open(): one that waits for a silent name server outlives
 * registry_close() by some seconds. SIGPIPE should be ignored.
 * Not to be linked into what starts often: libcurl takes 5 ms to load.
 */
#ifndef REGISTRY_REGISTRY_H
#define REGISTRY_REGISTRY_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "image/manifest.h"
#include "image/reference.h"

enum registry_cause {
#define CAUSE(name, again, elsewhere, text) REGISTRY_##name,
#include "registry/causes.def"
#undef CAUSE
};

/* ---- configuration: the mapping `registries` of cloche.yaml (docs/config.md) */

/* One registry that the configuration has something to say about. */
struct registry_site {
	char *name;     /* host[:port] as in image names: "docker.io", "registry.lan:5000" */
	char **mirrors; /* URLs, asked first, in this order: "http://127.0.0.1:5000/hub" */
	size_t mirror_count;
	bool only_mirrors; /* the registry itself is never asked */
	bool insecure;     /* plain HTTP and any certificate will do */
	char *ca_file;     /* PEM, trusted besides the system's; or NULL */
};

struct registry_config {
	struct registry_site *sites;
	size_t site_count;
};

/* Take the mapping `registries` as cloche-yaml gives it (all scalars strings) into ret, which is zero or holds an
 * earlier file's: a site of the later file replaces the earlier one. NULL is an empty mapping. */
int registry_config_read(struct registry_config *ret, const json_t *registries,
			 struct err *e) must_check;
void registry_config_done(struct registry_config *config);

/* ---- one image */

struct registry_blob;

struct registry_progress {
	uint64_t done,
		total; /* bytes of all blobs of this call; done falls when a blob begins again */
	const struct registry_blob *blobs;
	size_t blob_count;
	unsigned active;     /* transfers under way */
	const char *waiting; /* why nothing comes just now ("429: again in 12 s"), or NULL */
};

struct registry_options {
	/* Readable when the caller has given up (a signalfd, a pipe); -1: never. It is not read from. */
	int cancel_fd;
	/* The reference was chosen by somebody who is not the owner of this process (a client of the service):
	 * registries at private addresses only if the configuration names them, and no stored logins for others. */
	bool untrusted_reference;
	const char *
		docker_config; /* folder with config.json; NULL: $DOCKER_CONFIG, else ~/.docker; "": none */
	unsigned parallel; /* transfers at a time; 0: 3 */
	uint64_t
		stall_us; /* nothing (less than 256 bytes a second) for so long: stalled; 0: 30 s */
	uint64_t connect_us;  /* 0: 15 s */
	uint64_t deadline_us; /* of all calls together, from registry_open() on; 0: none */
	uint64_t patience_us; /* longest wait before a request is sent again; 0: 60 s */
	unsigned attempts;    /* of one request without progress; 0: 5 */
	uint64_t max_total;   /* bytes of one image's blobs; 0: 20 GiB */
	/* Called from the loop, at most ten times a second and at the end of each blob. May be NULL. */
	void (*progress)(void *context, const struct registry_progress *progress);
	void *progress_context;
};

struct registry;

/* Prepare; nothing is sent yet. config, reference and options are copied, their strings too. */
struct registry *registry_open(const struct registry_config *config,
			       const struct reference *reference,
			       const struct registry_options *options, struct err *e) must_check;
void registry_close(struct registry *r);

/* Why the last call on r failed. */
enum registry_cause registry_cause(const struct registry *r);
const char *registry_cause_name(enum registry_cause cause); /* "NOT_FOUND" */
const char *registry_cause_text(enum registry_cause cause);

struct registry_image {
	char digest[DIGEST_TEXT +
		    1]; /* of the document that the name stands for (index or manifest) */
	char *index;    /* that document when it is an index, as sent; else NULL */
	size_t index_size;
	char manifest_digest[DIGEST_TEXT +
			     1]; /* of the manifest; the same as digest without an index */
	char *manifest;          /* as sent: store it byte by byte */
	size_t manifest_size;
	char media_type[MEDIA_TYPE_MAX + 1]; /* of the manifest */
	struct manifest parsed;              /* its config and layers */
};

/* Name to manifest for the platform, each document checked against its digest. */
int registry_resolve(struct registry *r, const struct platform *platform,
		     struct registry_image *ret, struct err *e) must_check;
/* Only the digest that the name stands for now (HEAD, else GET): for `--pull always`. */
int registry_digest(struct registry *r, char ret[static DIGEST_TEXT + 1], struct err *e) must_check;
void registry_image_done(struct registry_image *image);

/*
 * A blob and where it goes. The sink verifies: it knows the bytes of earlier calls, too.
 *
 * write    takes all of data or fails.
 * restart  everything so far was worthless (a server without Range, a resumed blob with a wrong digest):
 *          throw it away; the next write is offset 0.
 * finish   exactly `size` bytes have come: check the digest, keep the blob. *ret_mismatch tells a wrong digest
 *          from a failure to store. After a mismatch of a resumed blob, or with another mirror left, it begins
 *          again with restart().
 * download.h has one that keeps files. A failure of write, of restart, or of finish without mismatch ends registry_fetch() with cause SINK and that error.
 */
struct registry_sink {
	int (*write)(void *context, const void *data, size_t size, struct err *e);
	int (*restart)(void *context, struct err *e);
	int (*finish)(void *context, bool *ret_mismatch, struct err *e);
	void *context;
};

struct registry_blob {
	struct descriptor what;
	uint64_t
		offset; /* bytes the sink has already from an earlier call: only the rest is asked for */
	struct registry_sink sink;
	uint64_t done; /* kept here while it runs: bytes the sink has */
	bool finished; /* set when finish() has kept it, also if the call fails for another blob */
};

/* Fetch all blobs, `parallel` at a time, in order. Finished ones are kept when another fails, and what a sink has
 * of an unfinished one stays good for a later call's offset. registry_resolve() has to come first, so that it is known
 * who serves the image. */
int registry_fetch(struct registry *r, struct registry_blob *blobs, size_t count,
		   struct err *e) must_check;

#endif
