/*
 * hello.c - the verbs hello and leave: a connection becomes a session, and says that it ends.
 *
 * Hello comes first and once. Its answer carries the board and the session's doorbell; only then is
 * the next packet read. Leave is not answered: it says that no device arena is open any more.
 */
#include "daemon/sched/verbs/beside.h"
#include "daemon/sched/verbs/sessions.h"
#include "daemon/session/begin.h"
#include "daemon/session/life.h"
#include "daemon/session/reply.h"
#include "verbs.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* For logs and reports: printable ASCII, whatever the client sent. */
static void name_set(struct session *s, const char *name)
{
	size_t i;

	for (i = 0; name && name[i] && i < sizeof(s->name) - 1; i++)
		s->name[i] = name[i] >= ' ' && name[i] < 0x7f ? name[i] : '?';
	s->name[i] = 0;
}

/* A board of its own, as far as a descriptor goes, and a doorbell. */
static int hello_fds(struct request *request)
{
	int board;
	int r = channel_segment_reopen(request->home->board_fd, &board);

	if (r < 0)
		return r;
	request_carry(request, board);
	request->session->doorbell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return request->session->doorbell_fd < 0 ? -errno : 0;
}

static void session_join(struct session *s, uint64_t id)
{
	struct session_add_call *call;
	struct request *request = request_begin(s, id, &verb_hello, sizeof(*call));
	int r;

	if (!request) {
		session_end(s, "no memory");
		return;
	}
	r = hello_fds(request);
	if (r < 0) {
		reply_error(s, id, r, NULL, "The daemon has no descriptor to spare: %s.",
			    strerror(-r));
		session_end(s, "no descriptor");
		request_free(request);
		return;
	}
	call = request->sched.room;
	*call = (struct session_add_call){.id = s->id,
					  .domain = s->peer.uid,
					  .doorbell_fd = s->doorbell_fd};
	s->state = SESSION_JOINING;
	s->joined = true;
	request_post(request);
}

static void hello_begin(struct session *s, uint64_t id, const void *message)
{
	const Coppice__Hello *hello = message;
	const char *refusal;

	if (s->state != SESSION_CONNECTED) {
		reply_error(s, id, -EPROTO, "hello", "Hello was said already.");
		return;
	}
	if (hello->abi_version != ABI_VERSION) {
		reply_error(s, id, -EPROTO, "abi_version",
			    "This daemon (%s) speaks ABI version %u, the client speaks version %u: "
			    "one of them must be updated.",
			    COPPICE_VERSION, ABI_VERSION, hello->abi_version);
		session_end(s, "ABI version %u", hello->abi_version);
		return;
	}
	name_set(s, hello->client_name);
	refusal = session_refusal(s);
	if (refusal) {
		reply_error(s, id, -EUSERS, NULL, "No session for you: %s.", refusal);
		session_end(s, "refused: %s", refusal);
		return;
	}
	session_join(s, id);
}

static void hello_answer(struct request *request)
{
	const struct session_add_call *call = request->sched.room;
	int fds[] = {request->fds[0], request->session->doorbell_fd};
	Coppice__Reply reply = reply_to(request);
	Coppice__HelloReply hello = COPPICE__HELLO_REPLY__INIT;
	bool refused = reply_failed(request);
	int r;

	session_opened(request->session, refused ? NULL : call->session);
	if (refused)
		return;
	hello.abi_version = ABI_VERSION;
	hello.daemon_version = (char *)COPPICE_VERSION;
	hello.session = request->session->id;
	hello.daemon_pid = (uint32_t)getpid();
	reply.hello = &hello;
	r = reply_send_fds(request->session, &reply, fds, 2);
	if (r == 0)
		return;
	reply_unsent(request->session, request->sched.id, r);
	session_end(request->session, "descriptors cannot be sent: %s", strerror(-r));
}

const struct verb verb_hello = {.begin = hello_begin,
				.serve = sched_session_add,
				.beside = beside_pass,
				.answer = hello_answer};

static void leave_begin(struct session *s, uint64_t id, const void *message)
{
	(void)id;
	(void)message;
	s->has_left = true;
	session_end(s, "it has left");
}

const struct verb verb_leave = {.begin = leave_begin};
