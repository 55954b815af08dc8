/*
 * request.c - a request before it is posted.
 *
 * A session counts its requests under way, so that it is not freed while the scheduler has one, and
 * those of them that carry descriptors, or take much memory.
 */
#include "request.h"

#include "session.h"

#include <stdlib.h>
#include <unistd.h>

void request_init(struct request *request, const struct verb *verb, struct sessions *home,
		  struct session *session)
{
	*request = (struct request){
		.verb = verb,
		.home = home,
		.session = session,
		.sched.serve = verb->serve,
		.sched.slow = verb->slow,
		.sched.beside = verb->beside,
		.sched.cookie = request,
	};
	if (session) {
		request->sched.session = session->sched;
		request->sched.privileged = session->privileged;
	}
}

void request_free(struct request *request)
{
	if (!request)
		return;
	for (uint32_t i = 0; i < request->n_fds; i++) {
		if (request->fds[i] >= 0)
			close(request->fds[i]);
	}
	if (request->n_fds)
		request->session->n_carriers--;
	if (request->session && request->verb->large)
		request->session->n_large--;
	free(request);
}

void request_carry(struct request *request, int fd)
{
	request->session->n_carriers += request->n_fds == 0;
	request->fds[request->n_fds++] = fd;
}

void request_post(struct request *request)
{
	if (request->session)
		request->session->n_requests++;
	sched_post(request->home->sched, &request->sched);
}
