/* SPDX-License-Identifier: Apache-2.0 */
#include "image/entry.h"

#include <string.h>
#include <sys/uio.h>

#include "base/fd.h"

void entry_reader_init(struct entry_reader *r, int fd, char *buffer)
{
	*r = (struct entry_reader){.fd = fd, .buffer = buffer};
}

/* Have this many bytes at begin. */
static int fill(struct entry_reader *r, size_t size)
{
	if (r->end - r->begin >= size)
		return 0;
	if (ENTRY_BUFFER - r->begin < size) {
		memmove(r->buffer, r->buffer + r->begin, r->end - r->begin);
		r->end -= r->begin;
		r->begin = 0;
	}
	while (r->end - r->begin < size) {
		ssize_t n = read(r->fd, r->buffer + r->end, ENTRY_BUFFER - r->end);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return -EPIPE;
		r->end += (size_t)n;
	}
	return 0;
}

static int check_xattrs(const char *data, size_t size)
{
	while (size > 0) {
		const char *nul = memchr(data, '\0', size);
		size_t name = nul ? (size_t)(nul - data) : size;
		uint32_t length;

		if (name == 0 || name > 255 || size - name < 1 + sizeof length)
			return -EBADMSG;
		memcpy(&length, nul + 1, sizeof length);
		data += name + 1 + sizeof length;
		size -= name + 1 + sizeof length;
		if (length > size)
			return -EBADMSG;
		data += length;
		size -= length;
	}
	return 0;
}

static int take_name(char *field, const char *data, size_t size)
{
	if (memchr(data, '\0', size))
		return -EBADMSG;
	memcpy(field, data, size);
	field[size] = '\0';
	return 0;
}

static int read_head(struct entry_reader *r, const char *data, size_t size, struct entry_frame *ret)
{
	struct entry_wire *w = &ret->head;

	if (size < sizeof *w)
		return -EBADMSG;
	memcpy(w, data, sizeof *w);
	data += sizeof *w;
	size -= sizeof *w;
	if (w->kind >= ENTRY_KIND_COUNT || w->mode > 07777 || w->mtime_ns > 999999999 ||
	    w->path_size > ENTRY_PATH_MAX || w->target_size > ENTRY_PATH_MAX ||
	    w->xattrs_size > ENTRY_XATTRS_MAX || w->size > INT64_MAX ||
	    (w->size > 0 && w->kind != ENTRY_FILE) ||
	    size != (size_t)w->path_size + w->target_size + w->xattrs_size)
		return -EBADMSG;
	if (take_name(r->path, data, w->path_size) < 0 ||
	    take_name(r->target, data + w->path_size, w->target_size) < 0)
		return -EBADMSG;
	ret->path = r->path;
	ret->target = r->target;
	ret->xattrs = data + w->path_size + w->target_size;
	return check_xattrs(ret->xattrs, w->xattrs_size);
}

static int read_data(const char *data, size_t size, struct entry_frame *ret)
{
	struct data_wire w;

	if (size < sizeof w)
		return -EBADMSG;
	memcpy(&w, data, sizeof w);
	ret->offset = w.offset;
	ret->data = data + sizeof w;
	ret->data_size = size - sizeof w;
	return ret->offset > INT64_MAX - ret->data_size ? -EBADMSG : 0;
}

static int read_payload(struct entry_reader *r, const char *data, size_t size,
			struct entry_frame *ret)
{
	switch (ret->type) {
	case ENTRY_FRAME_HEAD:
		return read_head(r, data, size, ret);
	case ENTRY_FRAME_DATA:
		return read_data(data, size, ret);
	case ENTRY_FRAME_END:
		if (size != sizeof ret->end)
			return -EBADMSG;
		memcpy(&ret->end, data, sizeof ret->end);
		return 0;
	case ENTRY_FRAME_ERROR:
		ret->error = r->error;
		return size > ENTRY_ERROR_MAX ? -EBADMSG : take_name(r->error, data, size);
	default:
		return -EBADMSG;
	}
}

int entry_read(struct entry_reader *r, struct entry_frame *ret)
{
	struct frame_head h;
	const char *data;
	int n = fill(r, sizeof h);

	if (n < 0)
		return n;
	memcpy(&h, r->buffer + r->begin, sizeof h);
	if (h.type == 0 || h.type >= ENTRY_FRAME_COUNT ||
	    h.size > (h.type == ENTRY_FRAME_DATA ? ENTRY_DATA_MAX + sizeof(struct data_wire)
						 : ENTRY_FRAME_MAX))
		return -EBADMSG;
	n = fill(r, sizeof h + h.size);
	if (n < 0)
		return n;
	data = r->buffer + r->begin + sizeof h;
	r->begin += sizeof h + h.size;
	*ret = (struct entry_frame){.type = (enum entry_frame_type)h.type};
	return read_payload(r, data, h.size, ret);
}

bool entry_next_xattr(const struct entry_frame *entry, size_t *position, const char **ret_name,
		      const void **ret_value, uint32_t *ret_size)
{
	const char *p = entry->xattrs + *position;

	if (*position >= entry->head.xattrs_size)
		return false;
	*ret_name = p;
	p += strlen(p) + 1;
	memcpy(ret_size, p, sizeof *ret_size);
	*ret_value = p + sizeof *ret_size;
	*position = (size_t)(p + sizeof *ret_size + *ret_size - entry->xattrs);
	return true;
}

static int write_vector(int fd, struct iovec *v, int count)
{
	while (count > 0) {
		ssize_t n = writev(fd, v, count);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		while (count > 0 && (size_t)n >= v->iov_len) {
			n -= (ssize_t)v->iov_len;
			v++;
			count--;
		}
		if (count > 0) {
			v->iov_base = (char *)v->iov_base + n;
			v->iov_len -= (size_t)n;
		}
	}
	return 0;
}

#define PART(data, size)                                  \
	{                                                 \
		(void *)(uintptr_t)(data), (size_t)(size) \
	}

int entry_write_head(int fd, const struct entry_wire *w, const char *path, const char *target,
		     const void *xattrs)
{
	struct frame_head h = {ENTRY_FRAME_HEAD, (uint32_t)sizeof *w + w->path_size +
							 w->target_size + w->xattrs_size};
	struct iovec v[] = {PART(&h, sizeof h), PART(w, sizeof *w), PART(path, w->path_size),
			    PART(target, w->target_size), PART(xattrs, w->xattrs_size)};

	return write_vector(fd, v, ARRAY_SIZE(v));
}

int entry_write_data(int fd, uint64_t offset, const void *data, size_t size)
{
	const char *p = data;

	while (size > 0) {
		size_t n = size < ENTRY_DATA_MAX ? size : ENTRY_DATA_MAX;
		struct data_wire w = {offset};
		struct frame_head h = {ENTRY_FRAME_DATA, (uint32_t)(sizeof w + n)};
		struct iovec v[] = {PART(&h, sizeof h), PART(&w, sizeof w), PART(p, n)};
		int r = write_vector(fd, v, ARRAY_SIZE(v));

		if (r < 0)
			return r;
		p += n;
		size -= n;
		offset += n;
	}
	return 0;
}

int entry_write_end(int fd, const struct end_wire *end)
{
	struct frame_head h = {ENTRY_FRAME_END, sizeof *end};
	struct iovec v[] = {PART(&h, sizeof h), PART(end, sizeof *end)};

	return write_vector(fd, v, ARRAY_SIZE(v));
}

int entry_write_error(int fd, const char *text)
{
	size_t n = strnlen(text, ENTRY_ERROR_MAX);
	struct frame_head h = {ENTRY_FRAME_ERROR, (uint32_t)n};
	struct iovec v[] = {PART(&h, sizeof h), PART(text, n)};

	return write_vector(fd, v, ARRAY_SIZE(v));
}
