/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ask.h - the conversations most routes are made of: one request to init, its answers as they come, and
 * the call's own answer at DONE. FAILED becomes the problem that its errno means.
 */
#ifndef SERVICE_ASK_H
#define SERVICE_ASK_H

#include "service/call.h"
#include "service/path.h"

struct asking {
	/* A frame that is neither DONE nor FAILED; false: it should not have come. */
	bool (*on_frame)(struct call *c, const struct frame *f, const unsigned char *payload);
	void (*on_done)(struct call *c); /* answers the call */
	void (*on_room)(struct call *c); /* may be NULL */
	/* What these say about the request, where it is not the usual: a component that is no folder (409), a
	 * link that may not be followed (403). 0: the usual. */
	enum problem not_a_folder, link;
};

/* Open c->talk and send the request. Once answered by a problem: false, and the call is gone. */
bool ask(struct call *c, const struct asking *how, enum frame_type type, const void *record,
	 size_t record_size, const void *tail, size_t tail_size);

/* End the call with what this failure means: 404 for ENOENT, 409 for EEXIST, ... An answer that has
 * begun is cut. */
void ask_failed(struct call *c, const struct failed_record *failed);

#endif
