/* SPDX-License-Identifier: Apache-2.0 */
#include "spawner/client.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int spawner_connect(struct spawner_client *c, const char *path)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	_cleanup_close_ int fd = -1;

	*c = (struct spawner_client){.fd = -1};
	if (strlen(path) >= sizeof a.sun_path)
		return -ENAMETOOLONG;
	memcpy(a.sun_path, path, strlen(path) + 1);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a) < 0)
		return -errno;
	c->fd = TAKE_FD(fd);
	return 0;
}

void spawner_disconnect(struct spawner_client *c)
{
	fd_close(&c->fd);
}

int64_t spawner_send(struct spawner_client *c, enum spawner_type type, void *request, size_t size,
		     const int *fds, size_t fd_count)
{
	union {
		char space[CMSG_SPACE(SPEC_MAX_VOLUMES * sizeof(int))];
		struct cmsghdr align;
	} control = {0};
	struct iovec iov = {request, size};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
	struct spawner_header *h = request;

	if (fd_count > SPEC_MAX_VOLUMES)
		return -EMSGSIZE;
	*h = (struct spawner_header){type, c->sequence == INT32_MAX ? 1 : c->sequence + 1};
	if (fd_count) {
		struct cmsghdr *cm;

		m.msg_control = &control;
		m.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
		cm = CMSG_FIRSTHDR(&m);
		*cm = (struct cmsghdr){CMSG_LEN(fd_count * sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
		memcpy(CMSG_DATA(cm), fds, fd_count * sizeof(int));
	}
	if (sendmsg(c->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		return errno == EPIPE ? -ECONNRESET : -errno;
	c->sequence = h->sequence;
	return h->sequence;
}

int64_t spawner_ask(struct spawner_client *c, enum spawner_type type, const char *id)
{
	struct spawner_hello hello = {.version = SPAWNER_VERSION};
	struct spawner_done list = {0};
	struct spawner_by_id m = {0};

	if (type == SPAWNER_HELLO)
		return spawner_send(c, type, &hello, sizeof hello, NULL, 0);
	if (type == SPAWNER_LIST)
		return spawner_send(c, type, &list, sizeof list, NULL, 0);
	if (!id || strlen(id) >= sizeof m.id)
		return -EINVAL;
	memcpy(m.id, id, strlen(id));
	return spawner_send(c, type, &m, sizeof m, NULL, 0);
}

static size_t size_of(uint32_t type)
{
	switch (type) {
	case SPAWNER_CREATED:
		return sizeof(struct spawner_created);
	case SPAWNER_DONE:
		return sizeof(struct spawner_done);
	case SPAWNER_REFUSED:
		return sizeof(struct spawner_refused);
	case SPAWNER_STATS_ARE:
		return sizeof(struct spawner_stats);
	case SPAWNER_ENDED:
		return sizeof(struct spawner_ended);
	case SPAWNER_LIVE:
		return sizeof(struct spawner_live);
	case SPAWNER_PULLING:
		return sizeof(struct spawner_by_id);
	default:
		return 0;
	}
}

#define END(field) ((field)[sizeof(field) - 1] = '\0')

static void end_texts(struct spawner_created *m)
{
	END(m->id);
	END(m->memory_events);
	END(m->pids_events);
	END(m->cpu_usage);
	END(m->enforced.memory);
	END(m->enforced.swap);
	END(m->enforced.cpu);
	END(m->enforced.pids);
	END(m->enforced.network);
	END(m->enforced.rootfs);
	END(m->enforced.disk);
	END(m->enforced.capabilities);
	END(m->enforced.seccomp);
}

int spawner_receive(struct spawner_client *c, union spawner_message *ret)
{
	ssize_t n = recv(c->fd, ret, sizeof *ret, MSG_DONTWAIT | MSG_TRUNC);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	if (n == 0)
		return -ECONNRESET;
	if (n < (ssize_t)sizeof ret->header || (size_t)n > sizeof *ret ||
	    (size_t)n != size_of(ret->header.type))
		return -EPROTO;
	switch (ret->header.type) {
	case SPAWNER_CREATED:
		end_texts(&ret->created);
		break;
	case SPAWNER_LIVE:
		end_texts(&ret->live.created);
		break;
	case SPAWNER_STATS_ARE:
		END(ret->stats.id);
		break;
	case SPAWNER_ENDED:
		END(ret->ended.id);
		break;
	case SPAWNER_PULLING:
		END(ret->pulling.id);
		break;
	case SPAWNER_REFUSED:
		END(ret->refused.stage);
		END(ret->refused.text);
		if (ret->refused.code >= CODE_COUNT)
			return -EPROTO;
		break;
	default:
		break;
	}
	return 1;
}
