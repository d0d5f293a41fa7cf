/* SPDX-License-Identifier: Apache-2.0 */
/*
 * box_image.c - the environment that a sandbox's image wants for what runs in it.
 *
 * cloched cannot read the store, which is root's: the worker that made the sandbox has left the image's environment
 * beside the sandbox's socket. It comes from whoever made the image, so it is read as strictly as everything else.
 */
#include <fcntl.h>
#include <string.h>

#include "base/fd.h"
#include "base/json.h"
#include "image/apply.h"
#include "image/image.h"
#include "service/box.h"
#include "service/service.h"

static int read_env(const char *path, struct strings *ret, struct err *e)
{
	_cleanup_image_config_ struct image_config config = {0};
	_cleanup_close_ int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_json_ json_t *root = NULL;
	_cleanup_free_ char *text = NULL;
	size_t size;
	int r = fd < 0 ? -errno : fd_slurp(fd, SPEC_ARGS_BYTES, &text, &size);

	if (r < 0)
		return err_set(e, -r, "read %.300s", path);
	root = json_read(text, size, e);
	if (!root || image_config_read_process(root, &config, e) < 0)
		return -1;
	*ret = config.env;
	config.env = (struct strings){0};
	return 0;
}

int box_read_image_env(const char *ctl, struct strings *ret, struct err *e)
{
	char path[sizeof((struct box *)NULL)->ctl + 8];
	size_t n = strlen(ctl);

	if (n < 3 || n >= sizeof path - 8)
		return err_set(e, EINVAL, "%.300s: no control socket", ctl);
	memcpy(path, ctl, n - 3); /* ".../ctl" */
	memcpy(path + n - 3, "image", sizeof "image");
	return read_env(path, ret, e);
}

void box_take_image(struct box *b)
{
	struct err e = {0};

	if (image_is_host(b->spec.image) || !b->ctl[0])
		return;
	if (box_read_image_env(b->ctl, &b->image_env, &e) < 0 ||
	    image_apply_env(&b->image_env, &b->spec, &e) < 0)
		log_event("image.environment",
			  json_pack("{ss ss}", "sandbox", b->stored.id, "error", e.text));
}
