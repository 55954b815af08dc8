/*
 * call.c - requests to coppiced over the control socket, one at a time.
 *
 * coppicectl has one request in flight, so the next packet is its reply; the id is checked all the
 * same.
 */
#include "call.h"

#include "proto/abi.h"
#include "proto/channel_why.h"
#include "proto/clock.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define CALL_TIMEOUT_S 30

int call_fail(struct call *call, int code, const char *field, const char *format, ...)
{
	va_list args;

	call->error.code = code;
	snprintf(call->error.field, sizeof(call->error.field), "%s", field ? field : "");
	va_start(args, format);
	vsnprintf(call->error.message, sizeof(call->error.message), format, args);
	va_end(args);
	return code;
}

int call_fail_missing(struct call *call, const char *part)
{
	return call_fail(call, -EPROTO, part, "coppiced's reply lacks its %s", part);
}

int call_fail_memory(struct call *call)
{
	return call_fail(call, -ENOMEM, NULL, "out of memory");
}

static int fail_connect(struct call *call, int code)
{
	char why[CHANNEL_WHY_BYTES];

	channel_why_connect(call->path, code, why, sizeof(why));
	return call_fail(call, code, NULL, "%s", why);
}

static int fail_transfer(struct call *call, int code)
{
	if (code == -EAGAIN)
		return call_fail(call, -ETIMEDOUT, NULL,
				 "coppiced at %s has not answered within %d s", call->path,
				 CALL_TIMEOUT_S);
	if (code == -EPIPE || code == -ECONNRESET)
		return call_fail(call, -ECONNRESET, NULL,
				 "coppiced at %s has closed the connection", call->path);
	return call_fail(call, code, NULL, "talking to coppiced at %s failed: %s", call->path,
			 strerror(-code));
}

static int call_send(struct call *call, Coppice__Request *request)
{
	size_t bytes = coppice__request__get_packed_size(request);
	int r;

	if (bytes > sizeof(call->packet))
		return call_fail(call, -EMSGSIZE, NULL, "the request is longer than %u bytes",
				 CHANNEL_MAX_BYTES);
	coppice__request__pack(request, call->packet);
	r = channel_send(call->fd, call->packet, bytes, NULL, 0);
	return r < 0 ? fail_transfer(call, r) : 0;
}

static int call_recv(struct call *call, Coppice__Reply **ret)
{
	int fds[CHANNEL_MAX_FDS];
	struct channel_fds_room room = {fds, CHANNEL_MAX_FDS};
	ssize_t n = channel_recv(call->fd, call->packet, sizeof(call->packet), &room, 0);

	if (n <= 0)
		return fail_transfer(call, n < 0 ? (int)n : -ECONNRESET);
	for (unsigned i = 0; i < room.n; i++)
		close(fds[i]);
	*ret = coppice__reply__unpack(NULL, (size_t)n, call->packet);
	if (!*ret)
		return call_fail(call, -EPROTO, NULL, "coppiced at %s sent what is no reply",
				 call->path);
	return 0;
}

int call_ask(struct call *call, Coppice__Request *request, Coppice__Reply **ret)
{
	CALL_REPLY reply = NULL;
	int r;

	request->id = ++call->last_id;
	r = call_send(call, request);
	if (r < 0)
		return r;
	r = call_recv(call, &reply);
	if (r < 0)
		return r;
	if (reply->id != request->id)
		return call_fail(call, -EPROTO, "id", "coppiced answered another request");
	if (reply->code != 0)
		return call_fail(call, reply->code, reply->field, "%s",
				 reply->message ? reply->message : strerror(-reply->code));
	*ret = reply;
	reply = NULL;
	return 0;
}

static int call_hello(struct call *call)
{
	Coppice__Request request = COPPICE__REQUEST__INIT;
	Coppice__Hello hello = COPPICE__HELLO__INIT;
	CALL_REPLY reply = NULL;
	int r;

	hello.abi_version = ABI_VERSION;
	hello.client_name = (char *)"coppicectl";
	request.hello = &hello;
	r = call_ask(call, &request, &reply);
	if (r < 0)
		return r;
	if (!reply->hello)
		return call_fail_missing(call, "hello");
	call->session = reply->hello->session;
	return 0;
}

int call_open(struct call *call, const char *path)
{
	struct timeval limit = {.tv_sec = CALL_TIMEOUT_S};
	int r;

	*call = (struct call){.fd = -1, .path = path ? path : channel_default_path()};
	r = channel_connect(call->path, CALL_TIMEOUT_S * NS_PER_S, &call->fd);
	if (r < 0)
		return fail_connect(call, r);
	if (setsockopt(call->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) < 0)
		return fail_transfer(call, -errno);
	return call_hello(call);
}

void call_close(struct call *call)
{
	if (call->fd >= 0)
		close(call->fd);
	call->fd = -1;
}
